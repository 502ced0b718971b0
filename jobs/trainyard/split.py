"""In which split a row is, and where in it.

By hash, both follow from the row's key and a seed alone: a row keeps its split however the table is
partitioned or ordered, and when rows are added. Stratified, each class is cut by itself at exact
shares, so that added rows can move others. By time, the earliest rows train and the latest test;
rows of one time share a split. By column, the source says it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from trainyard.dataset import KEY, LABEL
from trainyard.errors import JobError
from trainyard.rows import BY
from trainyard.specs import SPLITS, Prepare

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

    files: tuple[int, int, int]

    def split_of(self, part: int) -> str:
        """The split to which a file belongs, by its number."""
        return SPLITS[
            0 if part < self.files[0] else 1 if part < self.files[0] + self.files[1] else 2
        ]


def split_rows(rows: DataFrame, spec: Prepare) -> DataFrame:
    """Add to each row the number of its `split`.

    Reads the rows once more where their times or classes decide.

    Args:
        rows: good rows, with `key`, `label` and `by`.
        spec: how to split.
    """
    train, validation, _ = shares(spec)
    if spec.split_by == "column":
        named = F.when(F.col(BY) == SPLITS[0], 0).when(F.col(BY) == SPLITS[1], 1).otherwise(2)
        return rows.withColumn(SPLIT, named)
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


def plan(spec: Prepare, rows: DataFrame, *, count: int, width: int) -> Plan:
    """Decide on the files of a dataset: about 128 MiB each, and one at least."""
    rows_per_file = max(spec.row_group_rows, _FILE_BYTES // (4 * max(width, 1)))
    counts = [count * share for share in shares(spec)]
    if spec.split_by == "column":
        found = {row[SPLIT]: row["count"] for row in rows.groupBy(SPLIT).count().collect()}
        counts = [found.get(number, 0) for number in range(len(SPLITS))]
    train, validation, test = (max(1, math.ceil(rows / rows_per_file)) for rows in counts)
    return Plan(files=(train, validation, test))


def place(rows: DataFrame, plan: Plan, seed: int) -> DataFrame:
    """Add to each row the number of its file and its `order` in it, and bring files together.

    A partition holds whole files, sorted by file, order and key, so that equal keys are neighbours.
    """
    order = _fraction(F.xxhash64(F.lit(seed), F.lit("order"), F.col(KEY)))
    train, validation, test = plan.files
    part = (
        F.when(F.col(SPLIT) == 0, F.floor(order * train))
        .when(F.col(SPLIT) == 1, F.floor(order * validation) + train)
        .otherwise(F.floor(order * test) + train + validation)
    )
    placed = rows.withColumn(ORDER, order).withColumn(PART, part.cast("int"))
    return placed.repartition(sum(plan.files), PART).sortWithinPartitions(PART, ORDER, KEY)


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
        if share == 0 or counts[name] or (spec.split_by == "column" and name == "validation"):
            continue
        if spec.split_by == "column":
            raise JobError(
                f"the {name} split has 0 of {rows} rows: none has {name!r} in column "
                f"{spec.split_column!r}.",
                f"Mark some rows as {name!r}, or split by hash.",
            )
        setting = "test_fraction" if name == "train" else f"{name}_fraction"
        ties = f" Rows of one {spec.split_column!r} stay together." * (spec.split_by == "time")
        raise JobError(
            f"the {name} split has 0 of {rows} rows, where {rows} x {share:.3g} = "
            f"{rows * share:.1f} were expected (setting 'validation_fraction' is "
            f"{spec.validation_fraction}, 'test_fraction' is {spec.test_fraction}).{ties}",
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


def shares(spec: Prepare) -> tuple[float, float, float]:
    """The share of each split in the rows."""
    test, validation = spec.test_fraction, spec.validation_fraction
    return 1 - validation - test, validation, test


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
