"""What came of a trial, as its task tells the driver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended.

    Attributes:
        value: the metric of the epoch or round that is kept, of a complete trial.
        cause: why it failed, of a failed one; both are None of one that was given up early.
        fix: what to do about it.
        permanent: whether the same values would fail again, by the training's own error.
        seconds: how long it took.
        worker: host and process that ran it.
    """

    value: float | None = None
    cause: str | None = None
    fix: str = ""
    permanent: bool = False
    seconds: float = 0.0
    worker: str = ""


class PrunedError(Exception):
    """The driver gives this trial up: it does worse than others did at the same step."""
