"""One partition of a DataFrame becomes files; its task counts what cannot be trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.parts import PartWriter, task_attempt

TRAIN, VALIDATION = "train", "validation"

FLAG, CONTENT = "_trainyard_validation", "_trainyard_content"
"""Columns beside those that are written: whether a row validates, and its hash."""

MOST_VALUES = 10_000
"""Different values of a counted column that are told."""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A column that is written.

    Attributes:
        source: its name in the frame.
        name: its name in the files.
        kind: its type in the files: float32, float64, int64, or a list of one of them.
        may_miss: whether a NaN is a missing number, and no fault.
        minimum: least value that is no fault, if there is one.
        counted: whether its values are counted.
    """

    source: str
    name: str
    kind: pa.DataType
    may_miss: bool = False
    minimum: float | None = None
    counted: bool = False


@dataclass
class Part:
    """The files of a partition, one of each split that it has rows of.

    Attributes:
        columns: what a row has.
        merging: names of those columns that are null where 32-bit floats would merge the numbers.
        directory: where the files lie.
        row_group_rows: rows of a row group.
    """

    columns: Sequence[Taken]
    merging: Collection[str]
    directory: str
    row_group_rows: int
    rows: int = 0
    content: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    widths: dict[str, set[int]] = field(default_factory=dict)
    values: dict[str, Counter[float]] = field(default_factory=dict)
    writers: dict[str, PartWriter] = field(default_factory=dict)

    def __enter__(self) -> Part:
        self._stack = ExitStack()
        self._schema = pa.schema([(one.name, one.kind) for one in self.columns])
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, if there was nothing wrong with any so far."""
        self.rows += batch.num_rows
        content = batch.column(CONTENT).to_numpy().view(np.uint64)
        self.content = (self.content + int(content.sum(dtype=np.uint64))) % 2**64
        arrays = []
        for number, one in enumerate(self.columns):
            array = batch.column(number)
            if self._is_sound(one, array):
                arrays.append(array.cast(one.kind))
        if self.faults:
            return  # what could be written will not be read
        sound = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        flags = batch.column(FLAG)
        for split, mask in ((TRAIN, pc.invert(flags)), (VALIDATION, flags)):
            if (chosen := sound.filter(mask)).num_rows:
                self._writer(split).write(chosen)

    def _is_sound(self, one: Taken, array: pa.Array) -> bool:
        before = self.faults.total()
        numbers = array
        if is_list := pa.types.is_list(array.type):
            lengths = pc.unique(pc.list_value_length(array.drop_null()))
            self.widths.setdefault(one.name, set()).update(lengths.to_pylist())
            numbers = array.flatten()
        nulls = array.null_count + (numbers.null_count if is_list else 0)
        large = " or above 2^24, where 32-bit floats merge whole numbers"
        self._fault(one, "null" + large * (one.name in self.merging), nulls)
        values = numbers.drop_null().to_numpy(zero_copy_only=False)
        if not one.may_miss:
            self._fault(one, "not a number (NaN)", int(np.isnan(values).sum()))
        self._fault(one, "infinite", int(np.isinf(values).sum()))
        if one.minimum is not None:
            self._fault(one, f"below {one.minimum:g}", int((values < one.minimum).sum()))
        if one.kind == pa.int64():
            self._fault(one, "no whole number", int((values % 1 != 0).sum()))
        if one.counted:
            counts = self.values.setdefault(one.name, Counter())
            counts.update(dict(zip(*_unique(values), strict=True)))
        return self.faults.total() == before

    def _fault(self, one: Taken, reason: str, count: int) -> None:
        if count:
            self.faults[f"column {one.source!r} is {reason}"] += count

    def _writer(self, split: str) -> PartWriter:
        if split not in self.writers:
            partition, attempt = task_attempt()
            path = f"{split}/part-{partition:05d}-{attempt}.parquet"
            made = PartWriter(self.directory, path, self._schema, self.row_group_rows, repeating=())
            self.writers[split] = self._stack.enter_context(made)
        return self.writers[split]

    def report(self) -> dict[str, Any]:
        """What was written and found, as plain JSON."""
        written = {split: writer.written for split, writer in self.writers.items()}
        return {
            "rows": self.rows,
            "content": self.content,
            "faults": self.faults,
            "widths": {name: sorted(widths) for name, widths in self.widths.items()},
            "values": {n: list(c.most_common(MOST_VALUES)) for n, c in self.values.items()},
            "files": {
                split: {"path": file.path, "row_groups": file.row_groups, "bytes": file.bytes}
                for split, file in written.items()
            },
        }


def _unique(values: np.ndarray[Any, Any]) -> tuple[list[float], list[int]]:
    found, counts = np.unique(values, return_counts=True)
    return found.tolist(), counts.tolist()
