"""How far a scoring is, by what its tasks have committed."""

from __future__ import annotations

import time
from collections.abc import Mapping

from trainyard.commits import Commits
from trainyard.faults import Faults
from trainyard.predictions import Part
from trainyard.repeating import Repeating
from trainyard.rundir import EventWriter
from trainyard.scorable import Scorable

_EVERY_SECONDS = 1.0


class Progress:
    """Reports what is done of the rows, how fast, and how many are in quarantine.

    Args:
        commits: where the tasks commit their parts.
        done: the parts that an earlier attempt committed.
        rows: all rows.
        events: where to report.
    """

    def __init__(
        self, commits: Commits, done: Mapping[int, Part], rows: Scorable, events: EventWriter
    ) -> None:
        self._commits = commits
        self._events = events
        self._rows = rows
        self._parts = set(done)
        self._scored = sum(part.rows for part in done.values())
        self._bad = sum(_bad_rows(part) for part in done.values())
        self._first = self._scored + self._bad
        self._began = time.monotonic()

    def following(self) -> Repeating:
        """A thread that reports while a block runs."""
        return Repeating(self.report, every=_EVERY_SECONDS, name="predict-progress")

    def report(self) -> None:
        """Say what is done now."""
        for number, entry in self._commits.entries(self._parts).items():
            part = Part(**entry)
            self._parts.add(number)
            self._scored += part.rows
            self._bad += _bad_rows(part)
        done = self._scored + self._bad
        unit, seconds = self._rows.unit, time.monotonic() - self._began
        speed = (done - self._first) / seconds if seconds > 0 else 0.0
        figures = {f"{unit} per second": speed, "quarantined": self._bad}
        self._events.progress("predict", done, self._rows.count, unit, **figures)


def _bad_rows(part: Part) -> int:
    return Faults.from_json(part.faults).rows
