"""Score a table with a model and write the predictions as Parquet.

    MLFLOW_TRACKING_URI=sqlite:////tmp/run/mlflow.db \\
    spark-submit --master 'local[2]' jobs/predict.py --run-dir=/tmp/run/predict \\
        --source=/tmp/run/prepare/data --split=test --model=models:/digits@champion

The source is a prepared dataset's directory, or any table with the model's feature columns. Each
row in gives one row out: `key`, `prediction` (a label value), `probabilities` (in the order of the
model's classes; a regression has none), `model_name`, `model_version` and `scored_at`. A run writes
into a directory of its own, and its result.json says that all is there. Each part is committed when
it is done (see `commits`): another attempt in the same directory scores only the others.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trainyard import store
from trainyard.canonical import canonical
from trainyard.commits import Commits
from trainyard.dataset import FEATURES, KEY, MARGIN, Dataset
from trainyard.errors import JobError, TransientError
from trainyard.good_rows import checked_rows
from trainyard.inputs import input_of, inputs
from trainyard.job import Run, run_job
from trainyard.layout import DATASET, PREDICTIONS, join
from trainyard.models import ModelIdentity, ModelMeta, StoredModel, resolve_model
from trainyard.parts import cut, matrix, part_numbers, read_parts, schema_of, sweep
from trainyard.predictions import (
    Batches,
    Part,
    Scorable,
    Target,
    contents_of,
    earlier_parts,
    faults_of,
    write_parts,
)
from trainyard.preprocessing import Preprocessing
from trainyard.rows import FAULT, Batch, Layout, classify
from trainyard.scoring import Shipped, check_model
from trainyard.session import spark_session
from trainyard.sources import check_apart, open_table
from trainyard.sparkerrors import unwrapped
from trainyard.specs import SPLITS, Predict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTS_A_SLOT = 4
_PART_ROWS = 65_536


def predict(spec: Predict, run: Run) -> dict[str, Any]:
    """Run the job in a Spark session of its own."""
    with spark_session(f"predict {spec.source}", spec.imports) as spark, unwrapped():
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
    dataset = open_dataset(spec, model)
    work = work_of(spec, model, identity, dataset)
    commits = Commits.open(run.directory, work, plan_of(spark, spec, dataset), run.events.note)
    if dataset is not None:
        rows = dataset_rows(spark, spec, dataset, model, run.directory, commits.plan["parts"])
    else:
        rows = table_rows(spark, spec, model, run.directory)

    done = take_over(commits, directory, rows, run)
    target = Target(
        directory=directory,
        prefix=f"c{run.claim:04d}",
        identity=identity,
        scored_at=datetime.fromisoformat(commits.plan["scored_at"]),
    )
    run.events.progress("predict", sum(p.rows for p in done.values()), rows.count, "rows")
    parts = write_parts(rows, Shipped(spark, model, spec.batch_size), target, commits, done)
    faults_of(parts).check(rows.count, spec.source)
    written, unseen = sum(part.rows for part in parts), sum(part.unseen for part in parts)
    if written != rows.count:
        raise TransientError(
            f"{spec.source!r} had {rows.count} rows, but {written} when they were scored.",
            "Score a table that nothing writes meanwhile.",
        )
    sweep(directory, [part.path for part in parts])
    if unseen:
        run.events.note(
            f"{unseen} of {written} rows have a category that is missing or that no training row "
            "had; each was scored as such a one"
        )
    run.events.progress("predict", written, rows.count, "rows")
    return {
        "outputs": {"predictions": directory},
        "model": dataclasses.asdict(identity),
        "rows": {
            "in": rows.count,
            "out": written,
            **({"unseen": unseen} if rows.layout.categories else {}),
        },
    }


def open_dataset(spec: Predict, model: StoredModel) -> Dataset | None:
    """The source as a prepared dataset that is what the model wants, or None: it is a table."""
    if spec.format == "dataset" or (
        spec.format == "auto" and store.exists(join(spec.source, DATASET))
    ):
        dataset = Dataset.read(spec.source)
        model.meta.check_dataset(dataset)
        dataset.check_files(*splits_of(spec))
        return dataset
    if spec.split is not None:
        raise JobError(
            f"setting 'split' is {spec.split!r}, but {spec.source!r} is no prepared dataset.",
            "Leave 'split' out, or name the directory that holds dataset.json.",
        )
    return None


def splits_of(spec: Predict) -> list[str]:
    """The splits of a dataset to score."""
    return [spec.split] if spec.split else list(SPLITS)


def work_of(
    spec: Predict, model: StoredModel, identity: ModelIdentity, dataset: Dataset | None
) -> dict[str, Any]:
    """All that the predictions follow from, but for the rows of a table, which are hashed."""
    return {
        "settings": spec.decisive(),
        "model": [dataclasses.asdict(identity), dataclasses.asdict(model.meta)],
        "dataset": dataset and dataclasses.asdict(dataset),
    }


def plan_of(spark: SparkSession, spec: Predict, dataset: Dataset | None) -> dict[str, Any]:
    """When the scoring began, and of how many parts a dataset has at most."""
    rows = sum(dataset.rows(split) for split in splits_of(spec)) if dataset else 0
    slots = spark.sparkContext.defaultParallelism
    return {
        "scored_at": datetime.now(UTC).isoformat(),
        "parts": max(_PARTS_A_SLOT * slots, rows // _PART_ROWS),
    }


def take_over(commits: Commits, directory: str, rows: Scorable, run: Run) -> dict[int, Part]:
    """What an earlier attempt has done of this work; what it left besides is removed."""
    if not commits.entries():
        store.remove(directory)
        return {}
    contents = contents_of(rows.hashed) if rows.hashed is not None else None
    done = earlier_parts(commits, directory, contents)
    count = sum(part.rows for part in done.values())
    run.events.note(f"{count} of {rows.count} rows were scored by an earlier attempt")
    if done:
        sweep(directory, [part.path for part in done.values()])
    return done


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


def dataset_rows(
    spark: SparkSession,
    spec: Predict,
    dataset: Dataset,
    model: StoredModel,
    run_dir: str,
    most: int,
) -> Scorable:
    """The rows of a dataset's splits, in `most` parts or fewer."""
    splits = splits_of(spec)
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


if __name__ == "__main__":
    sys.exit(run_job(Predict, predict))
