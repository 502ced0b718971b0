"""Score a table with a model and write the predictions as Parquet.

    MLFLOW_TRACKING_URI=sqlite:////tmp/run/mlflow.db \\
    spark-submit --master 'local[2]' jobs/predict.py --run-dir=/tmp/run/predict \\
        --source=/tmp/run/prepare/data --split=test --model=models:/digits@champion

The source is a prepared dataset's directory, or any table with the model's feature columns. Each
row in gives one row out: `key`, `prediction` (a label value), `probabilities` (in the order of the
model's classes; a regression has none), `model_name`, `model_version` and `scored_at`. A run writes
into a directory of its own, and its result.json says that all is there.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trainyard import store
from trainyard.canonical import canonical
from trainyard.dataset import FEATURES, KEY, MARGIN, Dataset
from trainyard.errors import JobError
from trainyard.good_rows import checked_rows
from trainyard.inputs import input_of, inputs
from trainyard.job import Run, run_job
from trainyard.layout import DATASET, PREDICTIONS, join
from trainyard.models import ModelMeta, StoredModel, resolve_model
from trainyard.parts import UNITS, matrix, read_units, schema_of, sweep, units
from trainyard.predictions import Batches, Target, write_predictions
from trainyard.preprocessing import Preprocessing
from trainyard.rows import FAULT, Batch, Layout, classify
from trainyard.scoring import Shipped, check_model
from trainyard.session import spark_session
from trainyard.sources import check_apart, open_table
from trainyard.sparkerrors import unwrapped
from trainyard.specs import SPLITS, Predict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def predict(spec: Predict, run: Run) -> dict[str, Any]:
    """Run the job in a Spark session of its own."""
    with spark_session(f"predict {spec.source}") as spark, unwrapped():
        return predict_rows(spark, spec, run)


def predict_rows(spark: SparkSession, spec: Predict, run: Run) -> dict[str, Any]:
    """Score the rows and return the result's fields.

    Raises:
        JobError: the source does not fit the model, or has bad rows.
    """
    directory = join(run.directory, PREDICTIONS)
    check_apart(spec.source, directory)
    model_directory, identity = resolve_model(spec.model)
    model = StoredModel.read(model_directory)
    check_model(model, identity.uri)
    rows = open_rows(spark, spec, model, run.directory)

    store.remove(directory)
    target = Target(
        directory=directory,
        prefix=f"c{run.claim:04d}",
        identity=identity,
        scored_at=datetime.now(UTC),
    )
    run.events.progress("predict", 0, rows.count, "rows")
    shipped = Shipped(spark, model, spec.batch_size)
    written = write_predictions(rows.frame, rows.batches, rows.layout, shipped, target)
    written.faults.check(rows.count, spec.source)
    if written.rows != rows.count:
        raise JobError(
            f"{spec.source!r} had {rows.count} rows, but {written.rows} when they were scored.",
            "Score a table that nothing writes meanwhile.",
        )
    sweep(directory, written.paths)
    if written.unseen:
        run.events.note(
            f"{written.unseen} of {written.rows} rows have a category that is missing or that no "
            "training row had; each was scored as such a one"
        )
    run.events.progress("predict", written.rows, rows.count, "rows")
    return {
        "outputs": {"predictions": directory},
        "model": dataclasses.asdict(identity),
        "rows": {
            "in": rows.count,
            "out": written.rows,
            **({"unseen": written.unseen} if rows.layout.categories else {}),
        },
    }


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows to score.

    Attributes:
        frame: what Spark distributes.
        batches: makes numbers of a task's share of it.
        count: how many rows there are, counted apart from the scoring.
        layout: the columns that make a row.
    """

    frame: DataFrame
    batches: Batches
    count: int
    layout: Layout


def open_rows(spark: SparkSession, spec: Predict, model: StoredModel, run_dir: str) -> Rows:
    """The rows to score, checked to be what the model wants."""
    form = spec.format
    if form == "dataset" or (form == "auto" and store.exists(join(spec.source, DATASET))):
        return _dataset_rows(spark, spec, model, run_dir)
    if spec.split is not None:
        raise JobError(
            f"setting 'split' is {spec.split!r}, but {spec.source!r} is no prepared dataset.",
            "Leave 'split' out, or name the directory that holds dataset.json.",
        )
    meta = model.meta
    layout = layout_of(meta, spec.key or meta.key)
    table = open_table(spark, spec.source, form, layout.columns)
    frame = canonical(table, layout)
    count = table.frame.count()
    if meta.preprocessing is None:

        def classified(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
            return (classify(batch, layout) for batch in given)

        return Rows(frame=frame, batches=classified, count=count, layout=layout)
    made = Preprocessing.load(model.directory, meta.preprocessing, run_dir)
    frame = made.apply(checked_rows(frame, layout))
    return Rows(frame=frame, batches=_made_batches(meta.width), count=count, layout=layout)


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


def _dataset_rows(spark: SparkSession, spec: Predict, model: StoredModel, run_dir: str) -> Rows:
    dataset = Dataset.read(spec.source)
    model.meta.check_dataset(dataset)
    splits = [spec.split] if spec.split else list(SPLITS)
    dataset.check_files(*splits)
    layout = layout_of(model.meta, KEY)
    width, wanted = model.meta.width, input_of(dataset, "model", model)
    schema = schema_of(dataset, KEY, FEATURES, MARGIN)

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
        for batch in read_units(given, schema) if wanted == FEATURES else given:
            values = matrix(batch.column(wanted), width)
            margins = batch.column(MARGIN) if dataset.base_margin is not None else None
            yield Batch(values=values, keys=batch.column(KEY), faults={}, margins=margins)

    if wanted == FEATURES:
        parts = [unit for split in splits for unit in units(dataset, split)]
        frame = spark.createDataFrame(parts, UNITS)
    else:
        frame = inputs(spark, dataset, splits, {"model": model}, run_dir)
    count = sum(dataset.rows(split) for split in splits)
    return Rows(frame=frame, batches=batches, count=count, layout=layout)


if __name__ == "__main__":
    sys.exit(run_job(Predict, predict))
