"""One pass over a table for what must be known before it is written: faults, labels, ranges."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from trainyard.errors import JobError
from trainyard.rows import CONTENT, Batch, LabelKind, Layout, classify

MAX_CLASSES = 10_000
"""Distinct labels above which a column is no set of classes."""

_EXAMPLES = 3
_KINDS = 5
_EXACT = 2.0**24
_EPOCH_MS = (946_684_800_000.0, 4_102_444_800_000.0)
"""The years 2000 to 2100 in epoch milliseconds."""

_WHOLE = re.compile(r"-?(0|[1-9]\d*)(\.0*)?")


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

    def check(self, rows: int, source: str) -> None:
        """Raise `JobError` when there are any, with the count and examples of each fault."""
        if not self.rows:
            return
        kinds = "; ".join(
            f"{count} where {fault} (such as {', '.join(self.examples[fault])})"
            for fault, count in self.counts.most_common(_KINDS)
        )
        more = len(self.counts) - _KINDS
        raise JobError(
            f"{self.rows} of {rows} rows of {source!r} are bad: {kinds}"
            + (f"; and {more} more kinds." if more > 0 else "."),
            "Correct these rows in the source, or remove them.",
        )

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        return json.dumps([self.counts, self.examples])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        counts, examples = json.loads(text)
        return cls(counts=Counter(counts), examples=examples)


@dataclass(kw_only=True)
class Survey:
    """What a pass over a table found.

    Attributes:
        rows: rows read.
        content: sum of the rows' content hashes modulo 2**64; the same in any order.
        faults: the bad rows.
        labels: good rows of each label text; no longer exact above `MAX_CLASSES` texts.
        ranges: least and greatest value of each feature column, and whether all are whole numbers.
    """

    rows: int = 0
    content: int = 0
    faults: Faults = field(default_factory=Faults)
    labels: Counter[str] = field(default_factory=Counter)
    ranges: dict[str, tuple[float, float, bool]] = field(default_factory=dict)

    def add(self, batch: Batch, content: np.ndarray[Any, Any], layout: Layout) -> None:
        """Take a batch in."""
        self.rows += len(batch.features)
        self.content = (self.content + hash_sum(content)) % 2**64
        self.faults.add(batch, layout)
        good = batch.good
        if len(good) == 0:
            return
        if len(self.labels) <= MAX_CLASSES:
            self.labels.update(batch.labels.take(pa.array(good)).to_pylist())
        matrix = batch.features[good]
        columns = matrix.T if len(layout.features) > 1 else matrix.reshape(1, -1)
        for name, values in zip(layout.features, columns, strict=True):
            whole = bool((values == np.floor(values)).all())
            self._range(name, (float(values.min()), float(values.max()), whole))

    def merge(self, other: Survey) -> None:
        """Take in what a pass over other rows found."""
        self.rows += other.rows
        self.content = (self.content + other.content) % 2**64
        self.faults.merge(other.faults)
        self.labels.update(other.labels)
        for name, found in other.ranges.items():
            self._range(name, found)

    def _range(self, name: str, found: tuple[float, float, bool]) -> None:
        low, high, whole = self.ranges.get(name, found)
        self.ranges[name] = (min(low, found[0]), max(high, found[1]), whole and found[2])

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        return json.dumps(vars(self) | {"faults": self.faults.to_json()})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        values = json.loads(text)
        values["faults"] = Faults.from_json(values["faults"])
        values["labels"] = Counter(values["labels"])
        values["ranges"] = {name: tuple(found) for name, found in values["ranges"].items()}
        return cls(**values)


def hash_sum(hashes: np.ndarray[Any, Any]) -> int:
    """The sum of 64-bit hashes modulo 2**64."""
    return int(hashes.astype(np.uint64).sum(dtype=np.uint64))


def survey(rows: DataFrame, layout: Layout) -> Survey:
    """Read a table of `rows.canonical` once and say what is in it."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = Survey()
        for batch in batches:
            found.add(classify(batch, layout), batch.column(CONTENT).to_numpy(), layout)
        yield pa.record_batch({"found": [found.to_json()]})

    total = Survey()
    for row in rows.mapInArrow(work, "found string").collect():
        total.merge(Survey.from_json(row["found"]))
    return total


def check_rows(found: Survey, source: str) -> None:
    """Raise `JobError` when a table is empty or has bad rows."""
    if found.rows == 0:
        raise JobError(
            f"setting 'source' is {source!r}: it has 0 rows.", "Check the path and its files."
        )
    found.faults.check(found.rows, source)


def _example(batch: Batch, row: int, layout: Layout) -> str:
    if layout.key is not None:
        return f"key {batch.keys[row]}"
    numbers = ", ".join(f"{number:g}" for number in batch.features[row, :3])
    return f"the row [{numbers}{', ...' if layout.width > 3 else ''}]"


def class_of_each(found: Survey, label: str, kind: LabelKind) -> dict[str, str | int]:
    """The class that each label text stands for.

    Whole numbers become `int` where the column's type is a number, and in a file of text where
    every label is one.

    Raises:
        JobError: the labels are no classes, or there is only one.
    """
    texts = sorted(found.labels)
    if len(texts) > MAX_CLASSES:
        raise JobError(
            f"label column {label!r} has over {MAX_CLASSES} distinct values, such as {texts[0]!r}.",
            "Name a column of classes as 'label'.",
        )
    broken = [text for text in texts if not _WHOLE.fullmatch(text)]
    if kind == "number" and broken:
        raise JobError(
            f"label column {label!r} has values that are no whole numbers, such as {broken[0]}.",
            "Name a column of classes as 'label'.",
        )
    as_int = kind == "number" or (kind == "untyped" and not broken)
    classes: dict[str, str | int] = {
        text: int(text.split(".")[0]) if as_int else text for text in texts
    }
    if len(set(classes.values())) < 2:
        raise JobError(
            f"label column {label!r} has one class only: {texts[0]!r} in all {found.rows} rows.",
            "Name a label with two classes or more, or check how the rows were filtered.",
        )
    return classes


def notes(found: Survey) -> list[str]:
    """What a reader should know of the feature columns before training on them."""
    texts = []
    for name, (low, high, whole) in found.ranges.items():
        if low >= _EPOCH_MS[0] and high <= _EPOCH_MS[1]:
            texts.append(
                f"feature {name!r} looks like epoch milliseconds ({low:.0f} to {high:.0f}): a "
                "32-bit float keeps them to about 2 minutes. Use differences or date parts."
            )
        elif whole and max(-low, high) >= _EXACT:
            texts.append(
                f"feature {name!r} has whole numbers up to {max(-low, high):.0f}: from "
                f"{_EXACT:.0f} on 32-bit floats merge neighbours. Scale it, or leave out an id."
            )
    return texts
