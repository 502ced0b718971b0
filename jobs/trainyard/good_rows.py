"""The usable rows of a table, with their labels as what a network learns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from trainyard.dataset import CATEGORIES, FEATURES, KEEP, KEY, LABEL, MARGIN, VALUES, WEIGHT
from trainyard.errors import JobError, SettingError
from trainyard.parts import lists
from trainyard.rows import BY, CONTENT, FAULT, Layout, classify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def good_rows(
    rows: DataFrame, layout: Layout, index_of: Mapping[str, int], *, raw: bool
) -> DataFrame:
    """The usable rows with their numbers, and their labels as class indexes.

    Args:
        rows: `canonical` rows.
        layout: their columns.
        index_of: class index of each label text; empty for a regression.
        raw: whether the numbers stay as they are in `values`; else they are `features`.
    """
    numbers = f"{VALUES} array<double>" if raw else f"{FEATURES} array<float>"
    label = "bigint" if index_of else "double"
    carried = {
        WEIGHT: "double",
        MARGIN: "array<double>",
        KEEP: "array<string>",
        CATEGORIES: "array<string>",
        CONTENT: "bigint",
    }
    carried[BY] = rows.schema[BY].dataType.simpleString()
    types = ", ".join(f"`{name}` {kind}" for name, kind in carried.items())

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = classify(batch, layout)
            good = pa.array(found.good)
            values = found.values[found.good]
            labels = batch.column(LABEL).take(good)
            if index_of:
                labels = pa.array(_indexes(labels.to_pylist(), index_of), pa.int64())
            yield pa.record_batch(
                {
                    KEY: found.keys.take(good),
                    (VALUES if raw else FEATURES): lists(values if raw else values.astype("f4")),
                    LABEL: labels,
                    **{name: batch.column(name).take(good) for name in carried},
                }
            )

    return rows.mapInArrow(work, f"`{KEY}` string, {numbers}, `{LABEL}` {label}, {types}")


@contextmanager
def held(rows: DataFrame, *, again: bool) -> Iterator[None]:
    """Keep rows on the executors' disks in the block, if they are read again: made once."""
    if not again:
        yield
        return
    rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield
    finally:
        rows.unpersist()


def checked_rows(rows: DataFrame, layout: Layout) -> DataFrame:
    """`canonical` rows as `key`, `values`, `categories`, `margin`, `fault` and `content`.

    A bad row's values are zeros: it stays in, so that it is counted where the others are scored.
    """

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = classify(batch, layout)
            bad = list(found.faults)
            found.values[bad] = 0.0
            faults = [found.faults.get(row) for row in range(batch.num_rows)]
            yield pa.record_batch(
                {
                    KEY: found.keys,
                    VALUES: lists(found.values),
                    CATEGORIES: batch.column(CATEGORIES),
                    MARGIN: batch.column(MARGIN),
                    FAULT: pa.array(faults, pa.string()),
                    CONTENT: batch.column(CONTENT),
                }
            )

    types = "array<double>", "array<string>", "array<double>", "string", "long"
    columns = zip((VALUES, CATEGORIES, MARGIN, FAULT, CONTENT), types, strict=True)
    described = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    return rows.mapInArrow(check, f"`{KEY}` string, {described}")


def check_margins(rows: DataFrame, name: str | None, classes: int) -> None:
    """Raise `JobError` when a row has not one base margin, or for more classes one for each."""
    if name is None:
        return
    wanted = classes if classes > 2 else 1
    widths = {row[0]: row["count"] for row in rows.groupBy(F.size(MARGIN)).count().collect()}
    others = {width: count for width, count in widths.items() if width != wanted}
    if others:
        width, count = next(iter(others.items()))
        need = f"{classes} classes need an array of {wanted}" if classes > 2 else "it must be one"
        raise SettingError(
            "base_margin",
            name,
            f"{count} rows have {width} numbers in it, and {need}",
            "Give a number, or for more than two classes an array of one for each, in the order "
            "of the classes.",
        )


def _indexes(texts: list[str], index_of: Mapping[str, int]) -> list[int]:
    try:
        return [index_of[text] for text in texts]
    except KeyError as error:
        raise changed(f"label {error} was not there at first") from error


def changed(how: str) -> JobError:
    """The error for a source that does not give the same rows twice."""
    return JobError(
        f"the source changed while it was read: {how}.",
        "Prepare from a table that nothing writes and that gives the same rows at each reading.",
    )
