"""The usable rows of a table, with their labels as what a network learns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from trainyard.dataset import CATEGORIES, FEATURES, KEEP, KEY, LABEL, VALUES, WEIGHT
from trainyard.errors import JobError
from trainyard.parts import lists
from trainyard.rows import BY, CONTENT, Layout, classify

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
