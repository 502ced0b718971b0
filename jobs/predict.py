"""Score a table, a dataset or images with a model and write the predictions as Parquet.

    MLFLOW_TRACKING_URI=sqlite:////tmp/run/mlflow.db \\
    spark-submit --master 'local[2]' jobs/predict.py --run-dir=/tmp/run/predict \\
        --source=/tmp/run/prepare/data --split=test --model=models:/digits@champion

    spark-submit --master 'local[2]' jobs/predict.py --run-dir=/tmp/run/labels \\
        --source=/data/photos --model=package:efficientnet_lite0 --top-k=5 --bad-rows=0.1

The source is a prepared dataset's directory, or any table with the model's feature columns; for a
model of images it is a folder, a pattern, or a list of paths and URLs (see `images.listing`). Each
row in gives one row out: `key`, `prediction` (a label value), `probabilities` (in the order of the
model's classes, or of `labels`, the `top_k` likeliest; a regression has none), `model_name`,
`model_version` and `scored_at`. A bad row goes to quarantine, with its key and the reason. A run
writes into a directory of its own, and its result.json says that all is there. Each part is
committed when it is done (see `commits`): another attempt in the same directory scores only the
others.
"""

from __future__ import annotations

import dataclasses
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trainyard import store
from trainyard.answers import Answers, check_top_k
from trainyard.commits import Commits
from trainyard.dataset import Dataset
from trainyard.errors import JobError, TransientError
from trainyard.images.listing import Listing, list_images
from trainyard.job import Run, run_job
from trainyard.layout import DATASET, join
from trainyard.models import ModelIdentity, StoredModel, resolve_model
from trainyard.predictions import (
    Part,
    Target,
    contents_of,
    earlier_parts,
    faults_of,
    keep_only,
    write_parts,
)
from trainyard.progress import Progress
from trainyard.scorable import Scorable, dataset_rows, image_rows, table_rows
from trainyard.scoring import Shipped, batch_within, check_model
from trainyard.session import spark_session
from trainyard.sources import check_apart
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Predict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTS_A_SLOT = 2
_PART_ROWS = 262_144
_PART_IMAGES = 64
_MOST_PARTS = 4096


def predict(spec: Predict, run: Run) -> dict[str, Any]:
    """Run the job in a Spark session of its own."""
    with spark_session(f"predict {spec.source}", spec.imports, run.events) as spark, unwrapped():
        return predict_rows(spark, spec, run)


def predict_rows(spark: SparkSession, spec: Predict, run: Run) -> dict[str, Any]:
    """Score the rows and return the result's fields.

    Raises:
        JobError: the source does not fit the model, or has more bad rows than it may.
    """
    check_apart(spec.source, run.directory)
    model_directory, identity = resolve_model(spec.model)
    model = StoredModel.read(model_directory)
    check_model(model, identity.uri)
    check_top_k(spec.top_k, model.meta)
    source = open_source(spark, spec, model)
    work = work_of(spec, model, identity, source)
    commits = Commits.open(
        run.directory, work, plan_of(spark, spec, model, source), run.events.note
    )
    plan = commits.plan
    answers = Answers(
        identity=identity,
        scored_at=datetime.fromisoformat(plan["scored_at"]),
        top_k=spec.top_k,
    )
    target = Target(run_dir=run.directory, prefix=f"c{run.claim:04d}", answers=answers)
    if isinstance(source, Listing):
        rows = image_rows(spark, spec, source, model, run, plan)
    elif isinstance(source, Dataset):
        rows = dataset_rows(spark, spec, source, model, run.directory, plan["parts"])
    else:
        rows = table_rows(spark, spec, model, run.directory)

    done = take_over(commits, target, rows, run)
    shipped = Shipped(spark, model, plan["batch_size"], spec.device)
    progress = Progress(commits, done, rows, run.events)
    with progress.following():
        parts = write_parts(rows, shipped, target, commits, done)
    progress.report()
    keep_only(target, parts)
    faults = faults_of(parts)
    written, unseen = sum(part.rows for part in parts), sum(part.unseen for part in parts)
    if faults.rows:
        run.events.note(f"{faults.rows} of {rows.count} {rows.unit} are bad: {faults.told()}")
    faults.check(rows.count, spec.source, allowed=spec.bad_rows, most=spec.bad_rows_count)
    if written + faults.rows != rows.count:
        raise TransientError(
            f"{spec.source!r} had {rows.count} rows, but {written + faults.rows} when they were "
            "scored.",
            "Score a table that nothing writes meanwhile.",
        )
    if unseen:
        run.events.note(
            f"{unseen} of {written} rows have a category that is missing or that no training row "
            "had; each was scored as such a one"
        )
    return {
        "outputs": {
            "predictions": target.predictions,
            **({"quarantine": target.quarantine} if faults.rows else {}),
        },
        "model": dataclasses.asdict(identity),
        "rows": {
            "in": rows.count,
            "out": written,
            "quarantined": faults.rows,
            **({"unseen": unseen} if rows.layout.categories else {}),
        },
    }


def open_source(spark: SparkSession, spec: Predict, model: StoredModel) -> Dataset | Listing | None:
    """What the source is: a prepared dataset, images, or None for a table."""
    if model.meta.pixels is None:
        return open_dataset(spec, model)
    if spec.split is not None or spec.format == "dataset":
        raise JobError(
            f"setting 'model' is {spec.model!r}: it takes images, and no prepared dataset.",
            "Leave 'split' and 'format' out, and name a folder, a pattern or a list of images.",
        )
    return list_images(spark, spec.source, spec.format, spec.key)


def open_dataset(spec: Predict, model: StoredModel) -> Dataset | None:
    """The source as a prepared dataset that is what the model wants, or None: it is a table."""
    if spec.format == "dataset" or (
        spec.format == "auto" and store.exists(join(spec.source, DATASET))
    ):
        dataset = Dataset.read(spec.source)
        model.meta.check_dataset(dataset)
        dataset.check_files(*spec.splits)
        return dataset
    if spec.split is not None:
        raise JobError(
            f"setting 'split' is {spec.split!r}, but {spec.source!r} is no prepared dataset.",
            "Leave 'split' out, or name the directory that holds dataset.json.",
        )
    return None


def work_of(
    spec: Predict, model: StoredModel, identity: ModelIdentity, source: Dataset | Listing | None
) -> dict[str, Any]:
    """All that the predictions follow from, but for the rows of a table, which are hashed."""
    return {
        "settings": spec.decisive(),
        "model": [dataclasses.asdict(identity), dataclasses.asdict(model.meta)],
        "source": dataclasses.asdict(source)
        if isinstance(source, Dataset)
        else source and source.digest,
    }


def plan_of(
    spark: SparkSession, spec: Predict, model: StoredModel, source: Dataset | Listing | None
) -> dict[str, Any]:
    """When the scoring began, in which batches, and of which parts it is.

    A dataset has at most so many `parts`; images have parts of so many, all batches of one size.
    """
    batch_size = batch_within(model, spec.batch_size, spec.batch_memory)
    plan = {"scored_at": datetime.now(UTC).isoformat(), "batch_size": batch_size}
    if isinstance(source, Listing):
        images = max(_PART_IMAGES, -(-source.images.num_rows // _MOST_PARTS))
        return {**plan, "part_images": -(-images // batch_size) * batch_size}
    rows = sum(source.rows(split) for split in spec.splits) if source else 0
    slots = spark.sparkContext.defaultParallelism
    return {**plan, "parts": max(_PARTS_A_SLOT * slots, rows // _PART_ROWS)}


def take_over(commits: Commits, target: Target, rows: Scorable, run: Run) -> dict[int, Part]:
    """What an earlier attempt has done of this work; what it left besides is removed."""
    done: dict[int, Part] = {}
    if commits.entries():
        contents = contents_of(rows.hashed) if rows.hashed is not None else None
        done = earlier_parts(commits, target, contents)
        count = sum(part.rows for part in done.values())
        run.events.note(f"{count} of {rows.count} {rows.unit} were scored by an earlier attempt")
    keep_only(target, done.values())
    return done


if __name__ == "__main__":
    sys.exit(run_job(Predict, predict))
