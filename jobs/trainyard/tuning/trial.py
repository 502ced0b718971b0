"""One trial, inside its Spark task: a training with one rank that tells the driver how it does."""

from __future__ import annotations

import math
import os
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard import store
from trainyard.barrier.calls import Line
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.layout import CHECKPOINTS, join
from trainyard.local_copy import local_copy
from trainyard.rundir import finite
from trainyard.tuning.engines import Training, steps_of, train
from trainyard.tuning.outcomes import Outcome, PrunedError


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Travels to a task, and trains there.

    Attributes:
        number: of the trial in its study.
        training: its settings.
        dataset: the prepared dataset, which is read once on each machine.
        metric: what trials are compared by.
        every: epochs or rounds after which the driver is told.
        claim: number of the driver's claim on the run directory.
        line: to the driver.
    """

    number: int
    training: Training
    dataset: Dataset
    metric: str
    every: int
    claim: int
    line: Line

    def run(self) -> Outcome:
        """Train; whatever goes wrong in the training is the outcome."""
        began, worker = time.monotonic(), f"{socket.gethostname()} process {os.getpid()}"
        # One thread a trial: a second one on busy cores costs more than it brings.
        os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
        value, cause, fix, permanent = None, None, "", False
        try:
            dataset = local_copy(self.dataset, ("train", "validation"), _local_directory())
            figures = train(self.training, dataset, claim=self.claim, after=self.tell)
            value = figures[self.metric]
            if value is None or not math.isfinite(value):
                cause, fix = f"{self.metric} is {value}.", "Look at the dataset's labels."
                permanent = True
        except PrunedError:
            pass
        except JobError as error:
            cause, fix, permanent = error.cause, error.fix, error.permanent
        except Exception as error:
            print(traceback.format_exc(), file=sys.stderr, flush=True)  # into the executor's log
            cause = f"{type(error).__name__}: {error}"
            fix = "Read its traceback in the log of the executor that ran it."
        with suppress(OSError):  # they take room, and nothing else
            store.remove(join(self.training.run_dir, CHECKPOINTS))
        return Outcome(
            value=None if cause else value,
            cause=cause,
            fix=fix,
            permanent=permanent,
            seconds=time.monotonic() - began,
            worker=worker,
        )

    def tell(self, step: int, figures: Mapping[str, float | None]) -> None:
        """Tell the driver, every so often, how the trial does; its last step is given up no more.

        Raises:
            PrunedError: the driver gives it up.
        """
        last = step == steps_of(self.training)
        if step % self.every and not last:
            return
        told = {"step": step, "value": finite(figures[self.metric])}
        if self.line.call("trial", self.number, told)["prune"] and not last:
            raise PrunedError


def _local_directory() -> Path:
    """A directory of this machine that Spark removes with the application."""
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory()) / "datasets"
