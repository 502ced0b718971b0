"""Turns a run's progress events into lines of the task's log."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from trainyard import rundir
from trainyard.repeating import Repeating

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_LINE_SECONDS = 5.0
"""Least time between two lines of one stage, so that a fast stage does not fill the log."""


class ProgressLines:
    """Makes lines such as `train  45% epoch 9/20  loss 0.312 accuracy 0.91  about 35 s left`."""

    def __init__(self, *, every: float = _LINE_SECONDS) -> None:
        self._every = every
        self._first: dict[str, tuple[float, float]] = {}
        self._last: dict[str, float] = {}

    def lines(self, events: list[dict[str, Any]]) -> Iterator[str]:
        """The lines that events are worth, in their order."""
        for event in events:
            if event["kind"] == "note":
                yield event["text"]
            elif event["kind"] == "progress":
                yield from self._progress(event)

    def _progress(self, event: dict[str, Any]) -> Iterator[str]:
        stage, now, done, total = event["stage"], event["time"], event["done"], event["total"]
        started, done_at_start = self._first.setdefault(stage, (now, done))
        is_last = done >= total
        if not is_last and now - self._last.get(stage, -math.inf) < self._every:
            return
        self._last[stage] = now
        share = done / total if total else 1.0
        parts = [f"{stage}  {share:4.0%} {event['unit']} {_count(done)}/{_count(total)}"]
        if event["figures"]:
            parts.append(" ".join(f"{k} {_figure(v)}" for k, v in event["figures"].items()))
        if not is_last and done > done_at_start:
            left = (now - started) / (done - done_at_start) * (total - done)
            parts.append(f"about {_duration(left)} left")
        yield "  ".join(parts)


class ProgressFollower:
    """Logs a run's progress from a thread while the block runs.

    Args:
        run_dir: the run directory; events already there are an earlier attempt's, and not logged.
        log: the task's log.
        each_round: called after every look at the events.
        every: seconds between two looks.
    """

    def __init__(
        self,
        run_dir: str,
        log: Logger,
        *,
        each_round: Callable[[], None] = lambda: None,
        every: float = 1.0,
    ) -> None:
        self._run_dir = run_dir
        self._log = log
        self._each_round = each_round
        self._seen: dict[str, int] = {}
        self._lines = ProgressLines()
        self._rounds = Repeating(self._round, every=every, name="progress", patience=10)

    def __enter__(self) -> Self:
        self._seen = rundir.last_segments(self._run_dir)
        self._rounds.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rounds.stop()
        if kind is None:
            self._relay()

    def _round(self) -> None:
        self._relay()
        self._each_round()

    def _relay(self) -> None:
        try:
            events = rundir.read_events(self._run_dir, self._seen)
        except (OSError, ValueError) as error:
            self._log.debug("The run's events cannot be read now: %s", error)
            return
        for line in self._lines.lines(events):
            self._log.info("%s", line)


def _figure(value: Any) -> str:
    if value is None:
        return "not a number"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
