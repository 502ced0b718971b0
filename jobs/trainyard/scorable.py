"""The rows to score: of a table, of a prepared dataset, or images, in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trainyard import store
from trainyard.canonical import canonical
from trainyard.dataset import FEATURES, KEY, MARGIN, Dataset
from trainyard.good_rows import checked_rows
from trainyard.images.listing import SCHEMA, Listing
from trainyard.images.pixels import Limits
from trainyard.images.reading import ImageReader, image_batches
from trainyard.inputs import input_of, inputs
from trainyard.layout import IMAGES, join
from trainyard.models import ModelMeta, StoredModel
from trainyard.parts import PartWriter, cut, matrix, part_numbers, read_parts, schema_of
from trainyard.preprocessing import Preprocessing
from trainyard.rows import FAULT, Batch, Layout, classify
from trainyard.sources import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trainyard.job import Run
    from trainyard.specs import Predict

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[Batch]]
"""Makes batches of numbers of a task's share of a frame."""


@dataclass(frozen=True, kw_only=True)
class Scorable:
    """The rows to score.

    Attributes:
        frame: what Spark distributes; a partition is a part.
        batches: makes numbers of a part of it.
        count: how many rows there are, counted apart from the scoring.
        layout: the columns that make a row.
        unit: what they are called.
        hashed: rows with `content`, partitioned alike, where no dataset vouches for them.
    """

    frame: DataFrame
    batches: Batches
    count: int
    layout: Layout
    unit: str = "rows"
    hashed: DataFrame | None = None


def table_rows(spark: SparkSession, spec: Predict, model: StoredModel, run_dir: str) -> Scorable:
    """The rows of a table, checked to have the model's columns."""
    meta = model.meta
    layout = layout_of(meta, spec.key or meta.key)
    table = open_table(spark, spec.source, spec.format, layout.columns)
    frame = hashed = canonical(table, layout)

    def classified(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
        return (classify(batch, layout) for batch in given)

    batches: Batches = classified
    if meta.preprocessing is not None:
        made = Preprocessing.load(model.directory, meta.preprocessing, run_dir)
        frame, batches = made.apply(checked_rows(frame, layout)), _made_batches(meta.width)
    count = table.frame.count()
    return Scorable(frame=frame, batches=batches, count=count, layout=layout, hashed=hashed)


def dataset_rows(
    spark: SparkSession,
    spec: Predict,
    dataset: Dataset,
    model: StoredModel,
    run_dir: str,
    most: int,
) -> Scorable:
    """The rows of a dataset's splits, in `most` parts or fewer."""
    splits = spec.splits
    parts = cut(dataset, splits, most)
    width, wanted = model.meta.width, input_of(dataset, "model", model)
    schema = schema_of(dataset, KEY, FEATURES, MARGIN)

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
        for batch in read_parts(given, parts, schema) if wanted == FEATURES else given:
            values = matrix(batch.column(wanted), width)
            margins = batch.column(MARGIN) if dataset.base_margin is not None else None
            yield Batch(values=values, keys=batch.column(KEY), faults={}, margins=margins)

    if wanted == FEATURES:
        frame = part_numbers(spark, parts)
    else:
        frame = inputs(spark, dataset, parts, {"model": model}, run_dir)
    count = sum(dataset.rows(split) for split in splits)
    return Scorable(frame=frame, batches=batches, count=count, layout=layout_of(model.meta, KEY))


def image_rows(
    spark: SparkSession,
    spec: Predict,
    listing: Listing,
    model: StoredModel,
    run: Run,
    plan: Mapping[str, Any],
) -> Scorable:
    """The images of a listing, which is written down in the parts in which it will be scored."""
    for count, what in ((listing.blank, "are blank"), (listing.repeated, "repeat another")):
        if count:
            run.events.note(f"{count} entries of {spec.source!r} {what}, and are left out")
    meta, each = model.meta, plan["part_images"]
    directory = join(run.directory, IMAGES)
    store.remove(directory)
    with PartWriter(directory, f"c{run.claim:04d}.parquet", SCHEMA, each) as file:
        for batch in listing.images.to_batches(max_chunksize=each):
            file.write(batch)
    path = join(directory, file.written.path)
    parts = [[(path, group, count)] for group, count in enumerate(file.written.row_groups)]
    limits = Limits(
        bytes=spec.max_megabytes * 10**6,
        hosts=spec.allowed_hosts,
        timeout=spec.url_timeout,
        retries=spec.url_retries,
        connections=max(1, spec.host_connections // spark.sparkContext.defaultParallelism),
    )
    pixels, size, threads = meta.pixels, plan["batch_size"], spec.decode_threads
    assert pixels is not None  # noqa: S101 - or there would be no listing

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
        reader = ImageReader(pixels, meta.input_shape, limits)
        listed = read_parts(given, parts, SCHEMA)
        return image_batches(listed, reader, size, threads, meta.width)

    return Scorable(
        frame=part_numbers(spark, parts),
        batches=batches,
        count=listing.images.num_rows,
        layout=layout_of(meta, KEY),
        unit="images",
    )


def layout_of(meta: ModelMeta, key: str | None) -> Layout:
    """The columns that make a row for a model."""
    made = meta.preprocessing
    return Layout(
        numbers=made.numbers if made else meta.features,
        categories=made.categories if made else (),
        width=made.values if made else meta.width,
        missing=made is not None and made.imputation != "none",
        key=key,
        base_margin=meta.base_margin,
    )


def _made_batches(width: int) -> Batches:
    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
        for batch in given:
            told = batch.column(FAULT).to_pylist()
            unseen = batch.column(f"{FEATURES}_unseen").to_pylist()
            yield Batch(
                values=matrix(batch.column(FEATURES), width),
                keys=batch.column(KEY),
                faults={row: fault for row, fault in enumerate(told) if fault is not None},
                margins=batch.column(MARGIN),
                unseen=sum(
                    count > 0 for count, fault in zip(unseen, told, strict=True) if fault is None
                ),
            )

    return batches
