"""Runs a study's trials side by side, as Spark tasks of their own, until its budget is used up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState

from trainyard.barrier.calls import Line, answering
from trainyard.barrier.failures import first_line
from trainyard.barrier.launch import driver_host
from trainyard.barrier.slots import all_slots, check_most
from trainyard.dataset import Dataset
from trainyard.errors import SettingError, TransientError
from trainyard.job import Run
from trainyard.layout import TRIALS, join
from trainyard.specs import Tune
from trainyard.tuning.engines import Goal, most_steps
from trainyard.tuning.outcomes import Outcome
from trainyard.tuning.study import Begun, Study
from trainyard.tuning.trial import Trial

if TYPE_CHECKING:
    from pyspark import SparkContext

_TAG = "trainyard-trials"
_MOST_REPORTS = 50
"""Times that a trial tells the driver how it does, about."""

_CALL_SECONDS = 60


class Sweep:
    """Runs the trials of a study.

    Args:
        context: the Spark context.
        spec: the search.
        dataset: the prepared dataset.
        goal: what trials are compared by.
        run: the job's run.
        study: the study.
    """

    def __init__(
        self,
        context: SparkContext,
        spec: Tune,
        dataset: Dataset,
        goal: Goal,
        run: Run,
        study: Study,
    ) -> None:
        self._context = context
        self._spec = spec
        self._dataset = dataset
        self._goal = goal
        self._run = run
        self._study = study
        self._every = -(-most_steps(spec) // _MOST_REPORTS)
        self._stopping = threading.Event()
        self._telling = threading.Lock()

    def run(self) -> None:
        """Run trials until the budget is used up.

        Raises:
            SettingError: Spark can never run as many side by side.
            TransientError: Spark ended, or the study's database does not answer.
        """
        if self._spec.parallel:
            check_most(self._context, self._spec.parallel, "parallel")
        parallel = self._spec.parallel or all_slots(self._context)
        self._run.events.note(f"{parallel} trials side by side")
        host = driver_host(self._context)
        with answering(host, _CALL_SECONDS, self._answer) as line:
            with ThreadPoolExecutor(parallel, thread_name_prefix="trial") as pool:
                slots = [pool.submit(self._work, line) for _ in range(parallel)]
            for slot in slots:
                slot.result()
        self._run.events.note(f"no further trial begins: {self._study.over}")
        self._progress()

    def _answer(self, number: int, told: Any) -> dict[str, bool]:
        try:
            return {"prune": self._study.report(number, told["step"], told["value"])}
        except StorageInternalError:  # a database that is away for a moment fails no trial
            return {"prune": False}

    def _work(self, line: Line) -> None:
        """Run one trial after another in one of Spark's slots."""
        self._context.addJobTag(_TAG)
        try:
            while not self._stopping.is_set() and (begun := self._study.begin()) is not None:
                ended = self._study.finish(begun.number, self._outcome(begun, line))
                self._tell(ended)
        except BaseException:
            self._stopping.set()
            self._context.cancelJobsWithTag(_TAG)
            raise

    def _outcome(self, begun: Begun, line: Line) -> Outcome:
        directory = join(self._spec.run_dir, TRIALS, f"{begun.number:05d}")
        try:
            training = self._spec.trial(directory, begun.values)
        except SettingError as error:
            return Outcome(cause=error.cause, fix=error.fix, permanent=True)
        trial = Trial(
            number=begun.number,
            training=training,
            dataset=self._dataset,
            metric=self._goal.metric,
            every=self._every,
            claim=self._run.claim,
            line=line,
        )
        try:
            return self._in_a_task(trial.run)
        except Exception as error:
            if self._stopping.is_set() or self._context._jsc is None or self._is_stopped():
                raise TransientError(
                    f"Spark ended while trial {begun.number} ran: {first_line(error)}.",
                    "Read the log above; the next attempt goes on with the trials that ran.",
                ) from error
            return Outcome(
                cause=f"its task was lost: {first_line(error)}",
                fix="Most often memory ran out: give Spark's executors more, or try less at once.",
            )

    def _in_a_task(self, fn: Callable[[], Outcome]) -> Outcome:
        task = self._context.range(1, numSlices=1)
        [outcome] = task.mapPartitions(lambda _: iter([fn()])).collect()
        return outcome

    def _is_stopped(self) -> bool:
        scala: Any = self._context._jsc.sc()
        return bool(scala.isStopped())

    def _tell(self, ended: FrozenTrial) -> None:
        with self._telling:
            if ended.state == TrialState.FAIL:
                self._run.events.note(f"trial {ended.number} failed: {ended.user_attrs['cause']}")
            best = self._study.best
            figures = {
                self._goal.metric: ended.value,
                f"best_{self._goal.metric}": best.value if best else None,
            }
            self._run.events.metric(self._progress(), **figures)

    def _progress(self) -> int:
        """Tell how far the search is; return how many trials of this run have ended."""
        states = [t.state for t in self._study.own if t.state.is_finished()]
        best = self._study.best
        figures = {
            f"best {self._goal.metric}": best.value if best else None,
            "pruned": states.count(TrialState.PRUNED),
            "failed": states.count(TrialState.FAIL),
        }
        self._run.events.progress("tune", len(states), self._spec.trials, "trial", **figures)
        return len(states)
