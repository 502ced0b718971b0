"""Writes a prepared dataset's files from Spark's tasks, and reports what each holds."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from trainyard.dataset import KEY, LABEL, DataFile
from trainyard.parts import PartWriter, task_attempt
from trainyard.rows import CONTENT
from trainyard.split import PART, Plan, place
from trainyard.survey import hash_sum

_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where and how files are written.

    Attributes:
        directory: the dataset's directory.
        prefix: start of every file's name, which no other driver uses.
        schema: the files' columns.
        row_group_rows: rows of a row group.
        unique_keys: whether a key that comes twice is an error; else it is numbered.
        seed: seed of the order of rows.
        plan: which files there are.
    """

    directory: str
    prefix: str
    schema: pa.Schema
    row_group_rows: int
    unique_keys: bool
    seed: int
    plan: Plan


@dataclass(kw_only=True)
class Part:
    """What a file holds.

    Attributes:
        number: number of the file in the plan.
        content: sum of the rows' content hashes modulo 2**64.
        labels: rows of each class index; empty for a regression.
        repeated: some keys that came more than once.
        repeats: rows whose key the row before them had.
    """

    number: int
    file: DataFile
    content: int
    labels: Counter[int]
    repeated: list[str]
    repeats: int


def write_parts(rows: DataFrame, target: Target) -> list[Part]:
    """Write rows, and return the files by number.

    Args:
        rows: good rows with the schema's columns, `content`, and the number of their `split`.
        target: where and how.

    Raises:
        JobError: a file cannot be written.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in _write(batches, target):
            yield pa.record_batch({"part": [json.dumps(part)]})

    placed = place(rows, target.plan, target.seed)
    written = [json.loads(row["part"]) for row in placed.mapInArrow(write, "part string").collect()]
    return sorted((_part(values) for values in written), key=lambda part: part.number)


def _write(batches: Iterator[pa.RecordBatch], target: Target) -> Iterator[dict[str, Any]]:
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
                open_part = _OpenPart(number, target)
            open_part.write(batch.slice(start, stop - start))
    if open_part is not None:
        yield open_part.close()


class _OpenPart:
    """A file being written, and the tally of its rows."""

    def __init__(self, number: int, target: Target) -> None:
        self.number = number
        self._schema = target.schema
        self._unique_keys = target.unique_keys
        self._has_classes = pa.types.is_integer(target.schema.field(LABEL).type)
        _, attempt = task_attempt()
        name = f"{target.plan.split_of(number)}/{target.prefix}-{number:05d}-{attempt}.parquet"
        self._stack = ExitStack()
        self._writer = self._stack.enter_context(
            PartWriter(target.directory, name, target.schema, target.row_group_rows)
        )
        self._content = 0
        self._labels: Counter[int] = Counter()
        self._last = ("", 0)
        self._repeated: list[str] = []
        self._repeats = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._content = (self._content + hash_sum(batch.column(CONTENT).to_numpy())) % 2**64
        if self._has_classes:
            self._labels.update(batch.column(LABEL).to_pylist())
        keys = pa.array([self._key(key) for key in batch.column(KEY).to_pylist()], pa.string())
        columns = [
            (keys if wanted.name == KEY else batch.column(wanted.name)).cast(wanted.type)
            for wanted in self._schema
        ]
        self._writer.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))

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
