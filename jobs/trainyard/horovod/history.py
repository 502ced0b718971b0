"""What came of a training's epochs, which one is best, and when to stop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

_EMPTY = ("accuracy", "rmse", "validation_accuracy", "validation_rmse")


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What came of one epoch.

    Attributes:
        number: from 1.
        loss: mean loss of the training rows, by weight, each as it was before its step.
        accuracy: share of the training rows that were right, likewise; a classification's.
        rmse: root of the mean squared error of the training rows, likewise; a regression's.
        validation_loss: mean loss of the validation rows, by weight, after the epoch, if any.
        validation_accuracy: share of them that were right.
        validation_rmse: root of their mean squared error.
        rows_per_second: training rows of all ranks a second.
    """

    number: int
    loss: float
    accuracy: float | None = None
    rmse: float | None = None
    validation_loss: float | None
    validation_accuracy: float | None = None
    validation_rmse: float | None = None
    rows_per_second: float

    def figures(self) -> dict[str, float | None]:
        """The figures by name; those of the other task are left out."""
        figures = dataclasses.asdict(self)
        del figures["number"]
        return {k: v for k, v in figures.items() if v is not None or k not in _EMPTY}

    @property
    def judged_by(self) -> float:
        """The loss that decides which epoch is best."""
        return self.loss if self.validation_loss is None else self.validation_loss


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a rank returns.

    Attributes:
        history: every epoch, also those of an earlier attempt that this one resumed.
        state: weights of the best epoch, by name; of rank 0 only.
        rows: rows of the training and the validation split.
        resumed: epochs that an earlier attempt had done.
    """

    history: tuple[Epoch, ...]
    state: dict[str, Tensor] | None
    rows: dict[str, int]
    resumed: int

    @property
    def best(self) -> Epoch:
        """The epoch whose weights were kept."""
        return best_of(self.history)

    @property
    def rows_per_second(self) -> float:
        """Training rows a second, over all ranks and epochs."""
        return len(self.history) / sum(1 / epoch.rows_per_second for epoch in self.history)


def best_of(history: Sequence[Epoch]) -> Epoch:
    """The first epoch with the least loss."""
    return min(history, key=lambda epoch: epoch.judged_by)


def has_stalled(history: Sequence[Epoch], patience: int, min_delta: float) -> bool:
    """Whether the last epochs bettered the loss too little for the training to go on.

    It goes by the history alone, so that a resumed training stops where it would have.

    Args:
        history: the epochs so far.
        patience: how many epochs in a row may fail to better the loss; 0 is without end.
        min_delta: what counts as better: lower by more than this.
    """
    least, waited = math.inf, 0
    for epoch in history:
        better = epoch.judged_by < least - min_delta
        least, waited = (epoch.judged_by, 0) if better else (least, waited + 1)
    return 0 < patience <= waited
