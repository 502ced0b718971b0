"""Bad rows, counted by what is wrong with them, with examples."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

from trainyard.errors import JobError, shown_key
from trainyard.rows import Batch, Layout

_EXAMPLES = 3
_KINDS = 5


@dataclass(kw_only=True)
class Faults:
    """Bad rows by what is wrong with them.

    Attributes:
        counts: rows with each fault.
        examples: some of the rows with each fault.
    """

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows with a fault; a row has one at most."""
        return self.counts.total()

    def add(self, batch: Batch, layout: Layout) -> None:
        """Take a batch's bad rows in."""
        for row, fault in batch.faults.items():
            self._count(fault, 1, [_example(batch, row, layout)])

    def merge(self, other: Faults) -> None:
        """Take in the faults of other rows."""
        for fault, count in other.counts.items():
            self._count(fault, count, other.examples[fault])

    def _count(self, fault: str, count: int, examples: list[str]) -> None:
        self.counts[fault] += count
        known = self.examples.setdefault(fault, [])
        known += examples[: _EXAMPLES - len(known)]

    def check(
        self, rows: int, source: str, *, allowed: float | None = None, most: int | None = None
    ) -> None:
        """Raise `JobError` when there are too many, with the count and examples of each fault.

        Args:
            rows: rows of the source.
            source: what the user named.
            allowed: share of the rows that may be bad; without it none may, whatever is set.
            most: how many may be, besides.
        """
        is_few = most is None or self.rows <= most
        if self.rows <= (allowed or 0.0) * rows and is_few:
            return
        kinds = self.told()
        fix = "Correct these rows in the source, or remove them."
        if allowed is not None:
            kinds += f"; setting 'bad_rows' allows {allowed:g} x {rows} = {allowed * rows:g}"
            kinds += "" if is_few else f", 'bad_rows_count' {most}"
            name = "bad_rows" if is_few else "bad_rows_count"
            fix = f"Correct these rows in the source, or raise {name!r} to put them in quarantine."
        if self.rows == rows:
            fix = "No good row is left: correct the source, or name another source or column."
        raise JobError(f"{self.rows} of {rows} rows of {source!r} are bad: {kinds}.", fix)

    def told(self) -> str:
        """The count and examples of each fault, the commonest first."""
        kinds = "; ".join(
            f"{count} where {fault} (such as {', '.join(self.examples[fault])})"
            for fault, count in self.counts.most_common(_KINDS)
        )
        more = len(self.counts) - _KINDS
        return kinds + (f"; and {more} more kinds" if more > 0 else "")

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        return json.dumps([self.counts, self.examples])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        counts, examples = json.loads(text)
        return cls(counts=Counter(counts), examples=examples)


def _example(batch: Batch, row: int, layout: Layout) -> str:
    if layout.key is not None:
        return f"key {shown_key(batch.keys[row])}"
    numbers = ", ".join(f"{number:g}" for number in batch.values[row, :3])
    return f"the row [{numbers}{', ...' if layout.width > 3 else ''}]"
