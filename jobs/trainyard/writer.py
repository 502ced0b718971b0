"""Writes a prepared dataset's files from Spark's tasks, and reports what each holds."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from trainyard.dataset import FEATURES, KEY, LABEL, DataFile
from trainyard.errors import JobError
from trainyard.parts import SCHEMA, PartWriter, lists, task_attempt
from trainyard.rows import CONTENT, Layout, classify
from trainyard.split import PART, Plan, place
from trainyard.survey import hash_sum

_ROWS = f"{KEY} string, {FEATURES} array<float>, {LABEL} bigint, {CONTENT} bigint"
_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where and how files are written.

    Attributes:
        directory: the dataset's directory.
        prefix: start of every file's name, which no other driver uses.
        row_group_rows: rows of a row group.
        seed: seed of the split.
        plan: which files there are.
    """

    directory: str
    prefix: str
    row_group_rows: int
    seed: int
    plan: Plan


@dataclass(kw_only=True)
class Part:
    """What a file holds.

    Attributes:
        number: number of the file in the plan.
        content: sum of the rows' content hashes modulo 2**64.
        labels: rows of each class index.
        repeated: some keys that came more than once.
        repeats: rows whose key the row before them had.
    """

    number: int
    file: DataFile
    content: int
    labels: Counter[int]
    repeated: list[str]
    repeats: int


def write_parts(
    rows: DataFrame, layout: Layout, classes: Mapping[str, int], target: Target
) -> list[Part]:
    """Write the good rows of a table of `rows.canonical`, and return the files by number.

    Args:
        rows: the table.
        layout: its columns.
        classes: class index of each label text.
        target: where and how.

    Raises:
        JobError: a file cannot be written.
    """

    def label(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _labelled(batch, layout, classes)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in _write(batches, target, unique_keys=layout.key is not None):
            yield pa.record_batch({"part": [json.dumps(part)]})

    placed = place(rows.mapInArrow(label, _ROWS), target.plan, target.seed)
    written = [json.loads(row["part"]) for row in placed.mapInArrow(write, "part string").collect()]
    return sorted((_part(values) for values in written), key=lambda part: part.number)


def _labelled(batch: pa.RecordBatch, layout: Layout, classes: Mapping[str, int]) -> pa.RecordBatch:
    rows = classify(batch, layout)
    good = pa.array(rows.good)
    try:
        labels = [classes[text] for text in rows.labels.take(good).to_pylist()]
    except KeyError as error:
        raise changed(f"label {error} was not there at first") from error
    return pa.record_batch(
        {
            KEY: rows.keys.take(good),
            FEATURES: lists(rows.features[rows.good]),
            LABEL: pa.array(labels, pa.int64()),
            CONTENT: batch.column(CONTENT).take(good),
        }
    )


def changed(how: str) -> JobError:
    """The error for a source that does not give the same rows twice."""
    return JobError(
        f"the source changed while it was read: {how}.",
        "Prepare from a table that nothing writes and that gives the same rows at each reading.",
    )


def _write(
    batches: Iterator[pa.RecordBatch], target: Target, *, unique_keys: bool
) -> Iterator[dict[str, Any]]:
    """Write the files of one partition, whose rows come sorted by file and key order."""
    open_part: _OpenPart | None = None
    for batch in batches:
        numbers = batch.column(PART).to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, stop in itertools.pairwise(starts):
            if start == stop:
                continue
            number = int(numbers[start])
            if open_part is None or open_part.number != number:
                if open_part is not None:
                    yield open_part.close()
                open_part = _OpenPart(number, target, unique_keys=unique_keys)
            open_part.write(batch.slice(start, stop - start))
    if open_part is not None:
        yield open_part.close()


class _OpenPart:
    """A file being written, and the tally of its rows."""

    def __init__(self, number: int, target: Target, *, unique_keys: bool) -> None:
        self.number = number
        self._unique_keys = unique_keys
        _, attempt = task_attempt()
        name = f"{target.plan.split_of(number)}/{target.prefix}-{number:05d}-{attempt}.parquet"
        self._stack = ExitStack()
        self._writer = self._stack.enter_context(
            PartWriter(target.directory, name, SCHEMA, target.row_group_rows)
        )
        self._content = 0
        self._labels: Counter[int] = Counter()
        self._last = ("", 0)
        self._repeated: list[str] = []
        self._repeats = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._content = (self._content + hash_sum(batch.column(CONTENT).to_numpy())) % 2**64
        self._labels.update(batch.column(LABEL).to_pylist())
        keys = [self._key(key) for key in batch.column(KEY).to_pylist()]
        columns = [pa.array(keys, pa.string()), batch.column(FEATURES), batch.column(LABEL)]
        arrays = [array.cast(wanted.type) for array, wanted in zip(columns, SCHEMA, strict=True)]
        self._writer.write(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))

    def _key(self, key: str) -> str:
        """The key, numbered where rows without a key column repeat: they are neighbours here."""
        last, count = self._last
        count = count + 1 if key == last else 1
        self._last = (key, count)
        if count == 1:
            return key
        self._repeats += 1
        if key not in self._repeated and len(self._repeated) < _EXAMPLES:
            self._repeated.append(key)
        return key if self._unique_keys else f"{key}-{count}"

    def close(self) -> dict[str, Any]:
        self._stack.close()
        file = self._writer.written
        return {
            "number": self.number,
            "file": {"path": file.path, "row_groups": file.row_groups, "bytes": file.bytes},
            "content": self._content,
            "labels": list(self._labels.items()),
            "repeated": self._repeated,
            "repeats": self._repeats,
        }


def _part(values: dict[str, Any]) -> Part:
    file = values["file"]
    values["file"] = DataFile(
        path=file["path"], row_groups=tuple(file["row_groups"]), bytes=file["bytes"]
    )
    values["labels"] = Counter(dict(values["labels"]))
    return Part(**values)
