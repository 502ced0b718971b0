"""The predictions' files: their schema, and how Spark's tasks score rows into them.

Each partition of the rows is a part with a file of its own, which its task commits.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trainyard import store
from trainyard.commits import Commits
from trainyard.dataset import KEY, REGRESSION
from trainyard.errors import JobError
from trainyard.faults import Faults
from trainyard.layout import join
from trainyard.models import ModelIdentity, ModelMeta
from trainyard.parts import PartWriter, lists, matrix, task_attempt
from trainyard.rows import CONTENT, Batch, Layout
from trainyard.scoring import Scorer, Shipped
from trainyard.survey import hash_sum

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW_GROUP_ROWS = 65_536
_SAME = ("model_name", "model_version", "scored_at")
"""Columns that are the same in every row."""

_REPORT = "written string"

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
        hashed: rows with `content`, partitioned alike, where no dataset vouches for them.
    """

    frame: DataFrame
    batches: Batches
    count: int
    layout: Layout
    hashed: DataFrame | None = None


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
class Part:
    """What came of a part; its entry in `Commits`.

    Attributes:
        path: its file, relative to the predictions' directory.
        bytes: size of the file.
        rows: predictions in it.
        content: what the rows that were scored add up to; 0 where a dataset vouches for them.
        faults: rows that could not be scored, as `Faults.to_json` says.
        unseen: rows with a category that is missing or that no training row had.
    """

    path: str
    bytes: int
    rows: int
    content: int
    faults: str
    unseen: int


def earlier_parts(
    commits: Commits, directory: str, contents: Mapping[int, int] | None
) -> dict[int, Part]:
    """The parts that earlier attempts made and that still hold; others are forgotten.

    Args:
        commits: the work's.
        directory: the predictions'.
        contents: what the rows of each part add up to now, where nothing else vouches for them.
    """
    found = {number: Part(**entry) for number, entry in commits.entries().items()}
    for number, part in list(found.items()):
        is_same = contents is None or contents.get(number) == part.content
        if not is_same or store.size(join(directory, part.path)) != part.bytes:
            commits.forget(number)
            del found[number]
    return found


def content_of(batch: pa.RecordBatch) -> int:
    """What the hashes of some rows add up to; 0 for rows without."""
    has_hashes = CONTENT in batch.schema.names
    return hash_sum(batch.column(CONTENT).to_numpy()) if has_hashes else 0


def contents_of(rows: DataFrame) -> dict[int, int]:
    """What the rows of each partition add up to; reads them all."""

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = sum(map(content_of, batches)) % 2**64
        yield pa.record_batch({"found": [json.dumps([task_attempt()[0], total])]})

    found = rows.select(CONTENT).mapInArrow(add, "found string").collect()
    return dict(json.loads(row["found"]) for row in found)


def write_parts(
    rows: Scorable, model: Shipped, target: Target, commits: Commits, done: Mapping[int, Part]
) -> list[Part]:
    """Score the rows of every partition that is not done, and commit each; return all parts.

    An empty partition gives an empty file.

    Raises:
        JobError: a score is not finite, or a file cannot be written.
    """
    skipped, batches, layout = frozenset(done), rows.batches, rows.layout

    def work(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, attempt = task_attempt()
        if number in skipped:
            return
        scorer = model.scorer()
        schema = output_schema(scorer.meta)
        path = f"{target.prefix}-{number:05d}-{attempt}.parquet"
        faults, unseen, content = Faults(), 0, 0

        def tallied() -> Iterator[pa.RecordBatch]:
            nonlocal content
            for batch in given:
                content = (content + content_of(batch)) % 2**64
                yield batch

        repeating = _SAME if scorer.meta.task == REGRESSION else ("prediction", *_SAME)
        with PartWriter(
            target.directory, path, schema, _ROW_GROUP_ROWS, repeating=repeating
        ) as file:
            for batch in batches(tallied()):
                faults.add(batch, layout)
                unseen += batch.unseen
                file.write(scored(batch, scorer, target, schema))
        part = Part(
            path=path,
            bytes=file.written.bytes,
            rows=file.written.rows,
            content=content,
            faults=faults.to_json(),
            unseen=unseen,
        )
        counts = commits.commit(number, dataclasses.asdict(part))
        if counts["path"] != path:
            store.remove(join(target.directory, path))
        yield pa.record_batch({"written": [json.dumps(counts)]})

    reports = rows.frame.mapInArrow(work, _REPORT).collect()
    return [*done.values(), *(Part(**json.loads(row["written"])) for row in reports)]


def faults_of(parts: Iterable[Part]) -> Faults:
    """The bad rows of all parts."""
    faults = Faults()
    for part in parts:
        faults.merge(Faults.from_json(part.faults))
    return faults


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
