"""Score a table with a model and write the predictions as Parquet.

    MLFLOW_TRACKING_URI=sqlite:////tmp/run/mlflow.db \\
    spark-submit --master 'local[2]' jobs/predict.py --run-dir=/tmp/run/predict \\
        --source=/tmp/run/prepare/data --split=test --model=models:/digits@champion

The source is a prepared dataset's directory, or any table with the model's feature columns. Each
row in gives one row out: `key`, `prediction` (a label value), `probabilities` (in the order of the
model's classes), `model_name`, `model_version` and `scored_at`. A run writes into a directory of
its own, and its result.json says that all is there.
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
from trainyard.dataset import FEATURES, KEY, Dataset
from trainyard.errors import JobError
from trainyard.job import Run, run_job
from trainyard.layout import DATASET, PREDICTIONS, join
from trainyard.models import ModelMeta, StoredModel, resolve_model
from trainyard.parts import UNITS, matrix, read_units, sweep, units
from trainyard.predictions import Batches, Target, write_predictions
from trainyard.rows import Batch, Layout, canonical, classify
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
    rows = open_rows(spark, spec, model.meta)

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
    run.events.progress("predict", written.rows, rows.count, "rows")
    return {
        "outputs": {"predictions": directory},
        "model": dataclasses.asdict(identity),
        "rows": {"in": rows.count, "out": written.rows},
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


def open_rows(spark: SparkSession, spec: Predict, meta: ModelMeta) -> Rows:
    """The rows to score, checked to be what the model wants."""
    form = spec.format
    if form == "dataset" or (form == "auto" and store.exists(join(spec.source, DATASET))):
        return _dataset_rows(spark, spec, meta)
    if spec.split is not None:
        raise JobError(
            f"setting 'split' is {spec.split!r}, but {spec.source!r} is no prepared dataset.",
            "Leave 'split' out, or name the directory that holds dataset.json.",
        )
    key = spec.key or meta.key
    table = open_table(spark, spec.source, form, [*meta.features, *([key] if key else [])])
    layout = Layout(features=meta.features, width=meta.width, label=None, key=key)

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
        return (classify(batch, layout) for batch in given)

    return Rows(
        frame=canonical(table, meta.features, None, key),
        batches=batches,
        count=table.frame.count(),
        layout=layout,
    )


def _dataset_rows(spark: SparkSession, spec: Predict, meta: ModelMeta) -> Rows:
    dataset = Dataset.read(spec.source)
    meta.check_dataset(dataset)
    splits = [spec.split] if spec.split else list(SPLITS)
    layout = Layout(features=meta.features, width=meta.width, label=None, key=KEY)

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
        for batch in read_units(given):
            features = matrix(batch.column(FEATURES), layout.width)
            labels = pa.nulls(len(features), pa.string())
            yield Batch(features=features, labels=labels, keys=batch.column(KEY), faults={})

    parts = [unit for split in splits for unit in units(dataset, split)]
    return Rows(
        frame=spark.createDataFrame(parts, UNITS),
        batches=batches,
        count=sum(dataset.rows(split) for split in splits),
        layout=layout,
    )


if __name__ == "__main__":
    sys.exit(run_job(Predict, predict))
