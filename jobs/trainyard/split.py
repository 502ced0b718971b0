"""In which split a row is, and where in it: both follow from a hash of its key and a seed alone.

A row keeps its split however the table is partitioned or ordered, and when rows are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from trainyard.dataset import KEY
from trainyard.errors import JobError
from trainyard.specs import SPLITS, Prepare

PART = "part"
ORDER = "order"

_FILE_BYTES = 128 * 1024**2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which files a dataset gets.

    Attributes:
        bounds: the upper bound, exclusive, of each split's share of the hashes in 0..1.
        files: number of files of each split.
    """

    bounds: tuple[float, float, float]
    files: tuple[int, int, int]

    def split_of(self, part: int) -> str:
        """The split to which a file belongs, by its number."""
        return SPLITS[
            0 if part < self.files[0] else 1 if part < self.files[0] + self.files[1] else 2
        ]


def plan(spec: Prepare, *, rows: int, width: int) -> Plan:
    """Decide on the files of a dataset: about 128 MiB each, and one at least."""
    rows_per_file = max(spec.row_group_rows, _FILE_BYTES // (4 * max(width, 1)))
    shares = _shares(spec)
    train, validation, test = (max(1, math.ceil(rows * share / rows_per_file)) for share in shares)
    return Plan(bounds=(shares[0], shares[0] + shares[1], 1.0), files=(train, validation, test))


def place(rows: DataFrame, plan: Plan, seed: int) -> DataFrame:
    """Add to each row the number of its file and its `order` in it, and bring files together.

    A partition holds whole files, sorted by file, order and key, so that equal keys are neighbours.
    """
    share = _fraction(F.xxhash64(F.lit(seed), F.lit("split"), F.col(KEY)))
    order = _fraction(F.xxhash64(F.lit(seed), F.lit("order"), F.col(KEY)))
    train, validation, test = plan.files
    part = (
        F.when(share < plan.bounds[0], F.floor(order * train))
        .when(share < plan.bounds[1], F.floor(order * validation) + train)
        .otherwise(F.floor(order * test) + train + validation)
    )
    placed = rows.withColumn(ORDER, order).withColumn(PART, part.cast("int"))
    return placed.repartition(sum(plan.files), PART).sortWithinPartitions(PART, ORDER, KEY)


def check_counts(spec: Prepare, counts: dict[str, int]) -> None:
    """Raise `JobError` when a split that should have rows has none, with the arithmetic."""
    rows = sum(counts.values())
    for name, share in zip(SPLITS, _shares(spec), strict=True):
        if share > 0 and counts[name] == 0:
            setting = "test_fraction" if name == "train" else f"{name}_fraction"
            raise JobError(
                f"the {name} split has 0 of {rows} rows, where {rows} x {share:.3g} = "
                f"{rows * share:.1f} were expected (setting 'validation_fraction' is "
                f"{spec.validation_fraction}, 'test_fraction' is {spec.test_fraction}).",
                f"Bring more rows, or change {setting!r} or 'split_seed'.",
            )


def _shares(spec: Prepare) -> tuple[float, float, float]:
    test, validation = spec.test_fraction, spec.validation_fraction
    return 1 - validation - test, validation, test


def _fraction(hashed: Column) -> Column:
    """A number in 0..1, 1 excluded, from a 64-bit hash."""
    return F.shiftrightunsigned(hashed, 11) / F.lit(2.0**53)
