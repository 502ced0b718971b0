"""What came of a training's rounds, which one is best, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Round:
    """What came of one round.

    Attributes:
        number: from 1.
        figures: metrics after it: `NAME` of the training rows, `validation_NAME` of the others.
    """

    number: int
    figures: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a worker returns.

    Attributes:
        history: every round, also those of an earlier attempt that this one resumed.
        best: the round that is kept, with all before it.
        booster: the trees up to the best round, as UBJ; of rank 0 only.
        rows: rows of the training and the validation split.
        resumed: rounds that an earlier attempt had done.
        seconds: of this attempt's rounds.
        workers: how many there were.
    """

    history: tuple[Round, ...]
    best: Round
    booster: bytes | None
    rows: dict[str, int]
    resumed: int
    seconds: float
    workers: int

    @property
    def rounds_per_second(self) -> float | None:
        """Of this attempt, if it had any."""
        done = len(self.history) - self.resumed
        return done / self.seconds if done else None


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """When to stop, and which round is best: as XGBoost's own early stopping decides.

    It goes by the history alone, so that a resumed training stops where it would have.

    Attributes:
        figure: name of the metric that decides.
        grows: whether more of it is better.
        rounds: how many rounds in a row may fail to better it; 0 is without end.
        min_delta: what counts as better: by more than this.
    """

    figure: str
    grows: bool
    rounds: int
    min_delta: float

    def best(self, history: Sequence[Round]) -> Round:
        """The best round; the last one where no round is to stop the training."""
        return self._judge(history)[0] if self.rounds else history[-1]

    def is_over(self, history: Sequence[Round]) -> bool:
        """Whether the last rounds bettered it too little for the training to go on."""
        return bool(history) and 0 < self.rounds <= self._judge(history)[1]

    def _judge(self, history: Sequence[Round]) -> tuple[Round, int]:
        best, waited = history[0], 0
        least = math.inf
        for done in history:
            value = done.figures[self.figure] * (-1 if self.grows else 1)
            if least - value > self.min_delta:
                best, least, waited = done, value, 0
            else:
                waited += 1
        return best, waited


def figure_of(split: str, metric: str) -> str:
    """The name under which a metric is reported, which MLflow takes too."""
    name = metric.replace("@", "_at_")
    return name if split == "train" else f"{split}_{name}"
