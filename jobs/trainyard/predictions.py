"""The predictions' files: their schema, and how Spark's tasks score rows into them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trainyard.dataset import KEY, REGRESSION
from trainyard.errors import JobError
from trainyard.faults import Faults
from trainyard.models import ModelIdentity, ModelMeta
from trainyard.parts import PartWriter, lists, matrix, task_attempt
from trainyard.rows import Batch, Layout
from trainyard.scoring import Scorer, Shipped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW_GROUP_ROWS = 65_536
_REPORT = "written string"

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[Batch]]
"""Makes batches of numbers of a task's share of a frame."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where predictions go, and what each of them says.

    Attributes:
        directory: directory of the files.
        prefix: start of every file's name, which no other driver uses.
        scored_at: when the scoring began.
    """

    directory: str
    prefix: str
    identity: ModelIdentity
    scored_at: datetime


@dataclass(frozen=True, kw_only=True)
class Written:
    """What was written.

    Attributes:
        paths: the files, relative to their directory.
        rows: predictions in them.
        faults: rows that could not be scored.
        unseen: rows with a category that is missing or that no training row had.
    """

    paths: list[str]
    rows: int
    faults: Faults
    unseen: int


def write_predictions(
    frame: DataFrame, batches: Batches, layout: Layout, model: Shipped, target: Target
) -> Written:
    """Score every row of a frame and write a file a task; an empty frame gives an empty file.

    Raises:
        JobError: a score is not finite, or a file cannot be written.
    """

    def work(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scorer = model.scorer()
        schema = output_schema(scorer.meta)
        partition, attempt = task_attempt()
        faults, unseen = Faults(), 0
        path = f"{target.prefix}-{partition:05d}-{attempt}.parquet"
        with PartWriter(target.directory, path, schema, _ROW_GROUP_ROWS) as part:
            for batch in batches(given):
                faults.add(batch, layout)
                unseen += batch.unseen
                part.write(scored(batch, scorer, target, schema))
        written = [part.written.path, part.written.rows, faults.to_json(), unseen]
        yield pa.record_batch({"written": [json.dumps(written)]})

    reports = [json.loads(row["written"]) for row in frame.mapInArrow(work, _REPORT).collect()]
    faults = Faults()
    for _, _, found, _ in reports:
        faults.merge(Faults.from_json(found))
    return Written(
        paths=[path for path, *_ in reports],
        rows=sum(rows for _, rows, *_ in reports),
        faults=faults,
        unseen=sum(unseen for *_, unseen in reports),
    )


def output_schema(meta: ModelMeta) -> pa.Schema:
    """The files' schema.

    A class is a whole number where all classes are, else a text; a regression predicts a double and
    has no probabilities.
    """
    whole = all(isinstance(value, int) for value in meta.classes)
    says = [
        pa.field("prediction", pa.int64() if whole else pa.string()),
        pa.field("probabilities", pa.list_(pa.float64())),
    ]
    if meta.task == REGRESSION:
        says = [pa.field("prediction", pa.float64())]
    return pa.schema(
        [
            pa.field(KEY, pa.string()),
            *says,
            pa.field("model_name", pa.string()),
            pa.field("model_version", pa.string()),
            pa.field("scored_at", pa.timestamp("us", tz="UTC")),
        ]
    )


def scored(batch: Batch, scorer: Scorer, target: Target, schema: pa.Schema) -> pa.RecordBatch:
    """The predictions of a batch's good rows.

    Raises:
        JobError: a score is not finite.
    """
    good = batch.good
    keys = batch.keys.take(pa.array(good))
    features = batch.values[good].astype(np.float32, copy=False)
    margins = None
    if scorer.meta.base_margin is not None and batch.margins is not None:
        taken = batch.margins.take(pa.array(good))
        margins = matrix(taken, scorer.meta.margins).astype(np.float32)
    if scorer.meta.task == REGRESSION:
        values = scorer.values(features, margins)
        _check_finite(values, keys)
        says = [pa.array(values)]
    else:
        logs = scorer.log_probabilities(features, margins)
        _check_finite(logs.sum(axis=1), keys)
        classes = pa.array(scorer.meta.classes, schema.field("prediction").type)
        says = [classes.take(pa.array(logs.argmax(axis=1))), lists(np.exp(logs))]
    same = {
        "model_name": target.identity.name,
        "model_version": target.identity.version,
        "scored_at": target.scored_at,
    }
    repeated = [
        pa.repeat(pa.scalar(value, schema.field(name).type), len(good))
        for name, value in same.items()
    ]
    return pa.RecordBatch.from_arrays([keys, *says, *repeated], schema=schema)


def _check_finite(scores: np.ndarray[Any, Any], keys: pa.Array) -> None:
    broken = np.flatnonzero(~np.isfinite(scores))
    if len(broken):
        raise JobError(
            f"the model gives scores that are not finite, such as for key {keys[int(broken[0])]}.",
            "Check the model's training and the row's features.",
        )
