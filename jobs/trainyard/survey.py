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

from trainyard.canonical import LabelKind
from trainyard.dataset import CATEGORIES, CLASSIFICATION, LABEL
from trainyard.errors import JobError
from trainyard.faults import Faults
from trainyard.rows import CONTENT, Batch, Layout, classify

MAX_CLASSES = 10_000
"""Distinct labels above which a column is no set of classes, and likewise values of a category."""

_WHOLE = re.compile(r"-?(0|[1-9]\d*)(\.0*)?")


@dataclass(frozen=True, kw_only=True)
class Range:
    """What the numbers at one place of the good rows are.

    Attributes:
        low: the least; NaN where all are missing.
        high: the greatest.
        whole: whether all are whole numbers.
        missing: how many are missing.
    """

    low: float
    high: float
    whole: bool
    missing: int

    def join(self, other: Range) -> Range:
        """The range of both."""
        return Range(
            low=float(np.fmin(self.low, other.low)),
            high=float(np.fmax(self.high, other.high)),
            whole=self.whole and other.whole,
            missing=self.missing + other.missing,
        )


def range_of(values: np.ndarray[Any, Any]) -> Range:
    """The range of some numbers, one at least."""
    given = values[~np.isnan(values)]
    return Range(
        low=float(given.min()) if given.size else float("nan"),
        high=float(given.max()) if given.size else float("nan"),
        whole=bool((given == np.floor(given)).all()),
        missing=int(values.size - given.size),
    )


@dataclass(kw_only=True)
class Survey:
    """What a pass over a table found.

    Attributes:
        rows: rows read.
        content: sum of the rows' content hashes modulo 2**64; the same in any order.
        faults: the bad rows.
        labels: good rows of each label text; no longer exact above `MAX_CLASSES` texts.
        ranges: of each number in a row, by position; for a regression the label's is the last.
        categories: good rows of each category, likewise by position.
    """

    rows: int = 0
    content: int = 0
    faults: Faults = field(default_factory=Faults)
    labels: Counter[str] = field(default_factory=Counter)
    ranges: list[Range] = field(default_factory=list)
    categories: list[Counter[str]] = field(default_factory=list)

    def add(self, given: pa.RecordBatch, layout: Layout) -> None:
        """Take a batch of `canonical` rows in."""
        batch: Batch = classify(given, layout)
        self.rows += given.num_rows
        self.content = (self.content + hash_sum(given.column(CONTENT).to_numpy())) % 2**64
        self.faults.add(batch, layout)
        good = pa.array(batch.good)
        if len(good) == 0:
            return
        ranges = [range_of(values) for values in batch.values[batch.good].T]
        labels = given.column(LABEL).take(good)
        if layout.label is not None and layout.task != CLASSIFICATION:
            ranges.append(range_of(labels.to_numpy()))
        elif layout.label is not None:
            _count(self.labels, labels.to_pylist())
        categories = given.column(CATEGORIES).take(good).to_pylist() if layout.categories else []
        counted = [
            Counter(value or "" for value in values) for values in zip(*categories, strict=True)
        ]
        self._join(ranges, counted)

    def merge(self, other: Survey) -> None:
        """Take in what a pass over other rows found."""
        self.rows += other.rows
        self.content = (self.content + other.content) % 2**64
        self.faults.merge(other.faults)
        self.labels.update(other.labels)
        self._join(other.ranges, other.categories)

    def _join(self, ranges: list[Range], categories: list[Counter[str]]) -> None:
        if self.ranges and ranges:
            pairs = zip(self.ranges, ranges, strict=True)
            self.ranges = [mine.join(other) for mine, other in pairs]
        self.ranges = self.ranges or ranges
        if not self.categories:
            self.categories = [Counter() for _ in categories]
        for known, found in zip(self.categories, categories, strict=bool(categories)):
            _count(known, found)

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        ranges = [(r.low, r.high, r.whole, r.missing) for r in self.ranges]
        return json.dumps(vars(self) | {"faults": self.faults.to_json(), "ranges": ranges})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        values = json.loads(text)
        values["faults"] = Faults.from_json(values["faults"])
        values["labels"] = Counter(values["labels"])
        values["categories"] = [Counter(counted) for counted in values["categories"]]
        values["ranges"] = [
            Range(low=low, high=high, whole=whole, missing=missing)
            for low, high, whole, missing in values["ranges"]
        ]
        return cls(**values)


def _count(known: Counter[str], found: Any) -> None:
    if len(known) <= MAX_CLASSES:
        known.update(found)


def hash_sum(hashes: np.ndarray[Any, Any]) -> int:
    """The sum of 64-bit hashes modulo 2**64."""
    return int(hashes.astype(np.uint64).sum(dtype=np.uint64))


def survey(rows: DataFrame, layout: Layout) -> Survey:
    """Read a table of `canonical` rows once and say what is in it."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = Survey()
        for batch in batches:
            found.add(batch, layout)
        yield pa.record_batch({"found": [found.to_json()]})

    total = Survey()
    for row in rows.mapInArrow(work, "found string").collect():
        total.merge(Survey.from_json(row["found"]))
    return total


def class_of_each(found: Survey, label: str, kind: LabelKind) -> dict[str, str | int]:
    """The class that each label text stands for.

    Whole numbers become `int` where the column's type is a number, and in a file of text where
    every label is one.

    Raises:
        JobError: the labels are no classes, or there is only one.
    """
    texts = sorted(found.labels)
    fix = "Name a column of classes as 'label', or set 'task' to regression."
    if len(texts) > MAX_CLASSES:
        raise JobError(
            f"label column {label!r} has over {MAX_CLASSES} distinct values, such as {texts[0]!r}.",
            fix,
        )
    broken = [text for text in texts if not _WHOLE.fullmatch(text)]
    if kind == "number" and broken:
        raise JobError(
            f"label column {label!r} has values that are no whole numbers, such as {broken[0]}.",
            fix,
        )
    as_int = kind == "number" or (kind == "untyped" and not broken)
    classes: dict[str, str | int] = {
        text: int(text.split(".")[0]) if as_int else text for text in texts
    }
    if len(set(classes.values())) < 2:
        value = texts[0] if texts else None
        raise JobError(
            f"label column {label!r} has one class only: {value!r} in all "
            f"{found.rows - found.faults.rows} rows.",
            "Name a label with two classes or more, or check how the rows were filtered.",
        )
    return classes


def check_varies(found: Survey, label: str) -> None:
    """Raise `JobError` when a regression's label is the same in all rows."""
    values = found.ranges[-1]
    if values.low == values.high:
        raise JobError(
            f"label column {label!r} has one value only: {values.low:g} in all "
            f"{found.rows - found.faults.rows} rows.",
            "Name a label that varies, or check how the rows were filtered.",
        )
