"""Writes a DataFrame's rows to Parquet files that ranks read, once, and says what is wrong in them.

Spark's tasks write through fsspec, so that the place may be any that the Python environment can
reach; Spark needs no jar for it. The frame is computed once: a random column of it cannot differ
between training and validation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    NumericType,
)

from trainyard.access import Access
from trainyard.columns import column, is_array, numbers_of
from trainyard.dataset import DataFile
from trainyard.errors import JobError, SettingError, nearest
from trainyard.ml.part import CONTENT, FLAG, TRAIN, VALIDATION, Part, Taken
from trainyard.sparkerrors import unwrapped

if TYPE_CHECKING:
    from pyspark.sql import Column

FLOATS = 2**24
"""The whole numbers beyond which 32-bit floats merge neighbours."""


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What was written.

    Attributes:
        files: of `train` and `validation`.
        widths: numbers that each column of lists has in a row, by its name in the files.
        values: how often each value of each counted column comes, in training and validation.
        content: digest of the rows and their split, whatever their order.
    """

    files: dict[str, tuple[DataFile, ...]]
    widths: dict[str, int]
    values: dict[str, Counter[float]]
    content: str

    def rows(self, split: str) -> int:
        """Rows of a split."""
        return sum(file.rows for file in self.files[split])


def stage(
    frame: DataFrame,
    columns: Sequence[Taken],
    *,
    directory: str,
    access: Access | None,
    validation: float | str | None,
    seed: int = 0,
    parts: int,
    row_group_rows: int = 2048,
) -> Staged:
    """Write rows.

    Args:
        frame: the rows.
        columns: what to take of them.
        directory: where to write, known to no other call.
        access: how it is opened, where its URI does not say all.
        validation: share of the rows that validate, chosen by a hash of what they hold; or the
            column that says so, in which a null or a NaN is a training row's.
        seed: of that hash.
        parts: files of each split, at most.
        row_group_rows: rows of a row group.

    Raises:
        JobError: a column is missing or of another type; rows cannot be trained on, with how many
            of them by column and reason; or a split has no rows.
    """
    taken = [_column(frame, one) for one in columns]
    flag = _flag(frame, taken, validation, seed)
    content = F.xxhash64(*taken, flag)
    merging = {one.name for one in columns if _merges(type_of(frame, one.source), one.kind)}
    # Numbered: mapInArrow looks its columns up by name, and takes a dot in one for a field's.
    numbered = [one.alias(f"c{number}") for number, one in enumerate(taken)]
    rows = frame.select(*numbered, flag.alias(FLAG), content.alias(CONTENT)).coalesce(parts)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if access is not None:
            access.grant()
        with Part(columns, merging, directory, row_group_rows) as part:
            for batch in batches:
                part.write(batch)
        yield pa.record_batch({"part": [json.dumps(part.report())]})

    with unwrapped():
        written = rows.mapInArrow(write, "part string").collect()
    return _staged([json.loads(row["part"]) for row in written], columns, validation)


def _column(frame: DataFrame, taken: Taken) -> Column:
    kind = type_of(frame, taken.source)
    is_list = pa.types.is_list(taken.kind)
    is_narrow = is_list and taken.kind.value_type == pa.float32()
    number: Literal["double", "float"] = "float" if is_narrow else "double"
    if is_list and is_array(kind):
        numbers = numbers_of(taken.source, kind, number)
        if not _merges(kind, taken.kind):
            return numbers
        given = column(taken.source)
        exact = _exact(F.array_min(given)) & _exact(F.array_max(given))
        return F.when(F.coalesce(exact, F.lit(True)), numbers)
    rest = ", or arrays or vectors of them." if is_list else ": one for each row."
    check_number(taken.source, kind, f"Use numbers or booleans{rest}")
    value = column(taken.source).cast("int" if isinstance(kind, BooleanType) else kind)
    if _merges(kind, taken.kind):
        value = F.when(_exact(value), value)
    return F.array(value.cast(number)) if is_list else value.cast("double")


def _merges(kind: DataType, wanted: pa.DataType) -> bool:
    inner = wanted.value_type if pa.types.is_list(wanted) else wanted
    given = kind.elementType if isinstance(kind, ArrayType) else kind
    return isinstance(given, IntegerType | LongType) and inner == pa.float32()


def check_number(name: str, kind: DataType, fix: str) -> None:
    """Raise `JobError` for a column that is neither of numbers nor of booleans."""
    if not isinstance(kind, NumericType | BooleanType):
        raise JobError(f"column {name!r} has the type {kind.simpleString()}.", fix)


def _exact(number: Column) -> Column:
    return number.between(-FLOATS, FLOATS)


def type_of(frame: DataFrame, name: str) -> DataType:
    """The type of a frame's column.

    Raises:
        JobError: there is none of that name.
    """
    if name not in frame.columns:
        raise JobError(f"there is no column {name!r}.", nearest(name, frame.columns))
    kind: DataType = frame.schema[name].dataType
    return kind


def _flag(
    frame: DataFrame, taken: Sequence[Column], validation: float | str | None, seed: int
) -> Column:
    if validation is None:
        return F.lit(False)
    if isinstance(validation, str):
        kind = type_of(frame, validation)
        fix = "Use booleans, or 1 for rows that validate and 0 for others."
        check_number(validation, kind, fix)
        says = column(validation)
        if not isinstance(kind, BooleanType):
            says = (says > 0) & ~F.isnan(says.cast("double"))  # which Spark holds for the largest
        return F.coalesce(says, F.lit(False))
    share = F.pmod(F.xxhash64(*taken, F.lit(seed)), F.lit(2**32)) / F.lit(2.0**32)
    return share < F.lit(validation)


def _staged(
    reports: Sequence[Mapping[str, Any]], columns: Sequence[Taken], validation: float | str | None
) -> Staged:
    rows = sum(report["rows"] for report in reports)
    faults: Counter[str] = Counter()
    widths: dict[str, set[int]] = {}
    values: dict[str, Counter[float]] = {}
    files: dict[str, list[DataFile]] = {TRAIN: [], VALIDATION: []}
    for report in reports:
        faults.update(report["faults"])
        for name, found in report["widths"].items():
            widths.setdefault(name, set()).update(found)
        for name, counts in report["values"].items():
            values.setdefault(name, Counter()).update(dict(counts))
        for split, file in report["files"].items():
            files[split].append(DataFile(**{**file, "row_groups": tuple(file["row_groups"])}))
    _check(rows, faults, widths, columns)
    content = sum(report["content"] for report in reports) % 2**64
    ordered = {s: tuple(sorted(found, key=lambda file: file.path)) for s, found in files.items()}
    staged = Staged(
        files=ordered,
        widths={name: found.pop() for name, found in widths.items()},
        values=values,
        content=f"{content:016x}",
    )
    _check_splits(staged, validation)
    return staged


def _check(
    rows: int,
    faults: Mapping[str, int],
    widths: Mapping[str, set[int]],
    columns: Sequence[Taken],
) -> None:
    if not rows:
        raise JobError("the DataFrame has 0 rows.", "Give it rows to train on.")
    sources = {one.name: one.source for one in columns}
    for name, found in widths.items():
        if len(found) > 1:
            lengths = ", ".join(map(str, sorted(found)[:5]))
            raise JobError(
                f"the rows of column {sources[name]!r} have different lengths: {lengths}.",
                "Give all of them the same length.",
            )
    if faults:
        found_faults = "; ".join(f"{fault}: {count}" for fault, count in faults.items())
        raise JobError(
            f"of {rows} rows some cannot be trained on: {found_faults}.",
            "Leave such rows out, as with DataFrame.na.drop, or fill the values in.",
        )


def _check_splits(staged: Staged, validation: float | str | None) -> None:
    counts = {split: staged.rows(split) for split in (TRAIN, VALIDATION)}
    if validation is None and counts[TRAIN]:
        return
    for split, count in counts.items():
        if not count:
            raise SettingError(
                "validation",
                validation,
                f"of {sum(counts.values())} rows {counts[TRAIN]} are left to train on and "
                f"{counts[VALIDATION]} to validate, so that there are none for {split}",
                "Choose another share or column, or give more rows.",
            )
