"""Score a table with a model and write the predictions as Parquet.

    MLFLOW_TRACKING_URI=sqlite:////tmp/run/mlflow.db \\
    spark-submit --master 'local[2]' jobs/predict.py --run-dir=/tmp/run/predict \\
        --source=/tmp/run/prepare/data --split=test --model=models:/digits@champion

The source is a prepared dataset's directory, or any table with the model's feature columns. Each row
in gives one row out: `key`, `prediction` (a label value), `probabilities` (in the order of the model's
classes), `model_name`, `model_version` and `scored_at`. Each run writes into its own directory.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trainyard import store
from trainyard.dataset import FEATURES, KEY, Dataset
from trainyard.errors import JobError
from trainyard.job import Run, run_job
from trainyard.layout import DATASET, PREDICTIONS, join
from trainyard.models import ModelIdentity, ModelMeta, StoredModel, resolve_model
from trainyard.parts import UNITS, PartWriter, lists, matrix, read_units, sweep, task_attempt, units
from trainyard.rows import Batch, Layout, canonical, classify
from trainyard.scoring import Scorer, Shipped, check_model
from trainyard.session import spark_session
from trainyard.sources import open_table
from trainyard.sparkerrors import unwrapped
from trainyard.specs import SPLITS, Predict
from trainyard.survey import Faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW_GROUP_ROWS = 65_536
"""Rows of a row group of the predictions."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows to score.

    Attributes:
        frame: what Spark distributes.
        batches: makes of a task's share of it batches of numbers.
        count: how many rows there are, counted apart from the scoring.
        layout: the columns that make a row.
    """

    frame: DataFrame
    batches: Callable[[Iterator[pa.RecordBatch]], Iterator[Batch]]
    count: int
    layout: Layout


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
    run.events.progress("predict", 0, rows.count, "rows")
    shipped = Shipped(spark, model, spec.batch_size)
    schema = output_schema(model.meta)
    stamp = Stamp(identity=identity, scored_at=datetime.now(UTC))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path, attempt = task_attempt()
        faults, written = Faults(), None
        with PartWriter(
            directory, f"c{run.claim:04d}-{path:05d}-{attempt}.parquet", schema, ROW_GROUP_ROWS
        ) as part:
            for batch in rows.batches(batches):
                faults.add(batch, rows.layout)
                part.write(scored(batch, shipped.scorer(), stamp, schema))
        written = part.written
        yield pa.record_batch(
            {"written": [json.dumps([written.path, written.rows, faults.to_json()])]}
        )

    faults, paths, out = Faults(), [], 0
    for row in rows.frame.mapInArrow(work, "written string").collect():
        path, count, found = json.loads(row["written"])
        faults.merge(Faults.from_json(found))
        paths.append(path)
        out += count
    faults.check(rows.count, spec.source)
    sweep(directory, paths)
    if out != rows.count:
        raise JobError(
            f"{rows.count} rows of {spec.source!r} gave {out} predictions: the source changed meanwhile.",
            "Score a table that nothing writes.",
        )
    run.events.progress("predict", out, rows.count, "rows")
    return {
        "outputs": {"predictions": directory},
        "model": dataclasses.asdict(identity),
        "rows": {"in": rows.count, "out": out},
    }


def check_apart(source: str, directory: str) -> None:
    """Raise `JobError` when the source and the predictions' directory lie one in the other."""
    read, written = (uri.removeprefix("file://").rstrip("/") + "/" for uri in (source, directory))
    if read.startswith(written) or written.startswith(read):
        raise JobError(
            f"setting 'source' is {source!r}, and the predictions would go to {directory!r}: they overlap.",
            "Use another run directory.",
        )


def open_rows(spark: SparkSession, spec: Predict, meta: ModelMeta) -> Rows:
    """The rows to score, checked to be what the model wants."""
    form = spec.format
    if form == "auto" and store.exists(join(spec.source, DATASET)):
        form = "dataset"
    if form == "dataset":
        return _dataset_rows(spark, spec, meta)
    if spec.split is not None:
        raise JobError(
            f"setting 'split' is {spec.split!r}, but {spec.source!r} is no prepared dataset.",
            "Leave 'split' out, or name the directory that holds dataset.json.",
        )
    key = spec.key or meta.key
    columns = [*meta.features, *([key] if key else [])]
    table = open_table(spark, spec.source, form, columns)
    layout = Layout(features=meta.features, width=meta.width, label=None, key=key)

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
        return (classify(batch, layout) for batch in given)

    frame = canonical(table, meta.features, None, key)
    return Rows(frame=frame, batches=batches, count=table.frame.count(), layout=layout)


def _dataset_rows(spark: SparkSession, spec: Predict, meta: ModelMeta) -> Rows:
    dataset = Dataset.read(spec.source)
    meta.check_dataset(dataset)
    splits = [spec.split] if spec.split else list(SPLITS)
    layout = Layout(features=meta.features, width=meta.width, label=None, key=KEY)

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
        for batch in read_units(given):
            features = matrix(batch.column(FEATURES), layout.width)
            yield Batch(
                features=features, labels=pa.nulls(len(features)), keys=batch.column(KEY), faults={}
            )

    parts = [unit for split in splits for unit in units(dataset, split)]
    frame = spark.createDataFrame(parts, UNITS)
    count = sum(dataset.rows(split) for split in splits)
    return Rows(frame=frame, batches=batches, count=count, layout=layout)


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """What every prediction of a run says."""

    identity: ModelIdentity
    scored_at: datetime


def output_schema(meta: ModelMeta) -> pa.Schema:
    """The predictions' schema: a prediction is a whole number where all classes are, else a text."""
    whole = all(isinstance(value, int) for value in meta.classes)
    return pa.schema(
        [
            pa.field(KEY, pa.string()),
            pa.field("prediction", pa.int64() if whole else pa.string()),
            pa.field("probabilities", pa.list_(pa.float64())),
            pa.field("model_name", pa.string()),
            pa.field("model_version", pa.string()),
            pa.field("scored_at", pa.timestamp("us", tz="UTC")),
        ]
    )


def scored(batch: Batch, scorer: Scorer, stamp: Stamp, schema: pa.Schema) -> pa.RecordBatch:
    """The predictions of a batch's good rows.

    Raises:
        JobError: a score is not finite.
    """
    good = batch.good
    keys = batch.keys.take(pa.array(good))
    logs = scorer.log_probabilities(batch.features[good])
    broken = np.flatnonzero(~np.isfinite(logs.sum(axis=1)))
    if len(broken):
        raise JobError(
            f"the model gives scores that are not finite, such as for key {keys[int(broken[0])]}.",
            "Check the model's training and the row's features.",
        )
    classes = pa.array(scorer.meta.classes, schema.field("prediction").type)
    columns = [
        keys,
        classes.take(pa.array(logs.argmax(axis=1))),
        lists(np.exp(logs)),
        pa.repeat(pa.scalar(stamp.identity.name, pa.string()), len(good)),
        pa.repeat(pa.scalar(stamp.identity.version, pa.string()), len(good)),
        pa.repeat(pa.scalar(stamp.scored_at, schema.field("scored_at").type), len(good)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


if __name__ == "__main__":
    sys.exit(run_job(Predict, predict))
