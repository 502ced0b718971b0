"""Networks that end their own process or more, to see what becomes of the training."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
from torch import Tensor, nn


class Dying(nn.Linear):
    """A linear layer that kills its rank at given moments, each of which comes once.

    Args:
        deaths: one after the other: the rank, the moment (`forward` or `state_dict`: a step of
            training, or the making of a checkpoint) and how often that comes before it.
        memory: directory that remembers which of them there were.
    """

    def __init__(
        self, width: int, classes: int, deaths: list[tuple[int, str, int]], memory: str
    ) -> None:
        super().__init__(width, classes)
        self._deaths = deaths
        self._memory = Path(memory)
        self._came = {"forward": 0, "state_dict": 0}

    def forward(self, features: Tensor) -> Tensor:
        if self.training:
            self._come("forward")
        return super().forward(features)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self._come("state_dict")
        return super().state_dict(*args, **kwargs)

    def _come(self, moment: str) -> None:
        import horovod.torch as hvd

        self._came[moment] += 1
        for number, (rank, when, count) in enumerate(self._deaths):
            died = self._memory / f"death-{number}"
            if died.exists():
                continue
            mine = hvd.is_initialized() and hvd.rank() == rank and when == moment
            if mine and self._came[moment] > count:
                died.touch()
                self._die()
            return  # the deaths after it wait for it

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class TakingItsExecutor(Dying):
    """One that ends the executor in whose task it trains, and so its own process."""

    def _die(self) -> None:
        for process in psutil.Process().parents():
            if process.name() == "java":
                process.kill()
                break
        time.sleep(60)
