"""In which split a row is, and where in it.

By hash, both follow from the row's key and a seed alone: a row keeps its split however the table is
partitioned or ordered, and when rows are added. Stratified, each class is cut by itself at exact
shares, so that added rows can move others. By time, the earliest rows train and the latest test,
by shares or from the dates that the settings say; rows of one time share a split. By column, the
source says it.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import DataType, NumericType, StringType

from trainyard.dataset import KEY, LABEL
from trainyard.errors import JobError, SettingError
from trainyard.rows import BY
from trainyard.specs import SPLITS, Prepare
from trainyard.times import point

SPLIT = "split"
PART = "part"
ORDER = "order"

_FILE_BYTES = 128 * 1024**2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which files a dataset gets.

    Attributes:
        files: number of files of each split.
    """

    files: tuple[int, ...]

    @property
    def first(self) -> list[int]:
        """The number of each split's first file."""
        return [sum(self.files[:number]) for number in range(len(self.files))]

    def split_of(self, part: int) -> str:
        """The split to which a file belongs, by its number."""
        return SPLITS[bisect.bisect_right(self.first, part) - 1]


def split_rows(rows: DataFrame, spec: Prepare) -> DataFrame:
    """Add to each row the number of its `split`.

    Reads the rows once more where their times or classes decide.

    Args:
        rows: good rows, with `key`, `label` and `by`.
        spec: how to split.
    """
    if spec.split_by == "column":
        named = F.array_position(F.lit(list(SPLITS)), F.col(BY)) - 1
        return rows.withColumn(SPLIT, named.cast("int"))
    if spec.bounds:
        number = F.lit(0)
        for name, start in spec.bounds.items():
            begins = F.col(BY) >= point(f"{name}_from", start).value
            number = F.when(begins, SPLITS.index(name)).otherwise(number)
        return rows.withColumn(SPLIT, number)
    train, validation, *_ = shares(spec)
    share = _fraction(F.xxhash64(F.lit(spec.split_seed), F.lit("split"), F.col(KEY)))
    if spec.split_by == "time":
        cuts = rows.select(*_cuts(BY, train, train + validation)).head()
        assert cuts is not None  # noqa: S101 - an aggregate has one row
        first, second = (F.lit(cut) for cut in cuts)
        return rows.withColumn(SPLIT, _between(F.col(BY), first, second))
    if spec.stratify:
        # Rounded, so that what Spark holds for a class is bounded.
        share = F.floor(share * 2**20) / 2**20
        placed = rows.withColumn(ORDER, share)
        found = placed.groupBy(LABEL).agg(*_cuts(ORDER, train, train + validation)).collect()
        of_class = {int(row[LABEL]): row for row in found}
        cuts_of = [of_class.get(index, (0, 0.0, 0.0)) for index in range(max(of_class) + 1)]
        first, second = (F.lit([float(cut[i]) for cut in cuts_of])[F.col(LABEL)] for i in (1, 2))
        return placed.withColumn(SPLIT, _between(share, first, second)).drop(ORDER)
    bounds = F.lit(train), F.lit(train + validation)
    split = F.when(share < bounds[0], 0).when(share < bounds[1], 1).otherwise(2)
    return rows.withColumn(SPLIT, split)


def is_read_again(spec: Prepare) -> bool:
    """Whether good rows are looked at before they are written: their keys, times or classes."""
    return spec.split_by != "hash" or spec.stratify or spec.base_margin is not None


def plan(spec: Prepare, rows: DataFrame, *, count: int, width: int) -> Plan:
    """Decide on the files of a dataset: about 128 MiB each."""
    rows_per_file = max(spec.row_group_rows, _FILE_BYTES // (4 * max(width, 1)))
    counts = [count * share for share in shares(spec)]
    if spec.split_by == "column" or spec.bounds:
        counts = list(rows_of_each(rows).values())
    return Plan(files=tuple(math.ceil(rows / rows_per_file) for rows in counts))


def rows_of_each(rows: DataFrame) -> dict[str, int]:
    """Rows of each split."""
    found = {row[SPLIT]: row["count"] for row in rows.groupBy(SPLIT).count().collect()}
    return {name: found.get(number, 0) for number, name in enumerate(SPLITS)}


def place(rows: DataFrame, plan: Plan, seed: int) -> DataFrame:
    """Add to each row the number of its file and its `order` in it, and bring files together.

    A partition holds whole files, sorted by file, order and key, so that equal keys are neighbours.
    """
    order = _fraction(F.xxhash64(F.lit(seed), F.lit("order"), F.col(KEY)))
    files, first = (F.lit(list(numbers))[F.col(SPLIT)] for numbers in (plan.files, plan.first))
    part = F.floor(order * files) + first
    placed = rows.withColumn(ORDER, order).withColumn(PART, part.cast("int"))
    return placed.repartition(sum(plan.files), PART).sortWithinPartitions(PART, ORDER, KEY)


def check_bounds(spec: Prepare, kind: DataType) -> None:
    """Raise `SettingError` when a date is to cut a column of numbers, or a number one of dates.

    Args:
        spec: the settings.
        kind: the type of the column of times.
    """
    for name, start in spec.bounds.items():
        is_time = point(f"{name}_from", start).is_time
        if isinstance(kind, StringType) or is_time != isinstance(kind, NumericType):
            continue
        raise SettingError(
            f"{name}_from",
            start,
            f"the column {spec.split_column!r} has the type {kind.simpleString()}",
            f"Give a {'number' if is_time else 'date'}.",
        )


def check_counts(spec: Prepare, counts: dict[str, int], *, is_flag: bool = False) -> None:
    """Raise `JobError` when a split that should have rows has none, with the arithmetic.

    Args:
        spec: how the rows were split.
        counts: rows of each split.
        is_flag: whether the split column is a boolean, which says what validates.
    """
    rows = sum(counts.values())
    if is_flag:
        _check_flag(spec, counts, rows)
        return
    for name, share in zip(SPLITS, shares(spec), strict=True):
        if counts[name] or not _is_wanted(spec, name, share):
            continue
        said = f"the {name} split has 0 of {rows} rows"
        if spec.split_by == "column":
            raise JobError(
                f"{said}: none has {name!r} in column {spec.split_column!r}.",
                f"Mark some rows as {name!r}, or split by hash.",
            )
        if spec.bounds:
            told = ", ".join(f"'{split}_from' is {at!r}" for split, at in spec.bounds.items())
            raise JobError(
                f"{said} by column {spec.split_column!r} (setting {told}).",
                "Choose dates between which there are rows.",
            )
        setting = "test_fraction" if name == "train" else f"{name}_fraction"
        ties = f" Rows of one {spec.split_column!r} stay together." * (spec.split_by == "time")
        raise JobError(
            f"{said}, where {rows} x {share:.3g} = {rows * share:.1f} were expected (setting "
            f"'validation_fraction' is {spec.validation_fraction}, 'test_fraction' is "
            f"{spec.test_fraction}).{ties}",
            f"Bring more rows, or change {setting!r} or 'split_seed'.",
        )


def _check_flag(spec: Prepare, counts: dict[str, int], rows: int) -> None:
    for name, value in ((SPLITS[0], "false"), (SPLITS[1], "true")):
        if not counts[name]:
            raise JobError(
                f"the {name} split has 0 of {rows} rows: none has {value} in column "
                f"{spec.split_column!r}.",
                f"Mark some rows as {value}, or split by hash.",
            )


def _is_wanted(spec: Prepare, name: str, share: float) -> bool:
    if spec.split_by == "column":
        return name in ("train", "test")
    return name == "train" or name in spec.bounds if spec.bounds else share > 0


def shares(spec: Prepare) -> tuple[float, float, float, float]:
    """The share of each split in the rows, where no column and no dates say it."""
    test, validation = spec.test_fraction, spec.validation_fraction
    return 1 - validation - test, validation, test, 0.0


def _cuts(name: str, *parts: float) -> list[Column]:
    """The values up to which these parts of the rows lie, exactly."""
    return [
        F.expr(f"percentile_disc({part!r}) WITHIN GROUP (ORDER BY `{name}`)").alias(f"cut{number}")
        for number, part in enumerate(parts)
    ]


def _between(value: Column, first: Column, second: Column) -> Column:
    return F.when(value <= first, 0).when(value <= second, 1).otherwise(2)


def _fraction(hashed: Column) -> Column:
    """A number in 0..1, 1 excluded, from a 64-bit hash."""
    return F.shiftrightunsigned(hashed, 11) / F.lit(2.0**53)
