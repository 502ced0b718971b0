"""The predictions' files: their schema, and how Spark's tasks score rows into them.

Each partition of the rows is a part with a file of its own, which its task commits.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from trainyard import store
from trainyard.answers import Answers
from trainyard.commits import Commits
from trainyard.faults import Faults
from trainyard.layout import PREDICTIONS, QUARANTINE, join
from trainyard.parts import PartWriter, sweep, task_attempt
from trainyard.quarantine import BadRows
from trainyard.rows import CONTENT
from trainyard.scorable import Scorable
from trainyard.scoring import Shipped
from trainyard.survey import hash_sum

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW_GROUP_ROWS = 65_536
_REPORT = "written string"


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where predictions and bad rows go.

    Attributes:
        run_dir: the run directory.
        prefix: start of every file's name, which no other driver uses.
        answers: what each prediction says.
    """

    run_dir: str
    prefix: str
    answers: Answers

    @property
    def predictions(self) -> str:
        """The directory of the predictions' files."""
        return join(self.run_dir, PREDICTIONS)

    @property
    def quarantine(self) -> str:
        """The directory of the bad rows' files."""
        return join(self.run_dir, QUARANTINE)


@dataclass(frozen=True, kw_only=True)
class Part:
    """What came of a part; its entry in `Commits`.

    Attributes:
        path: its file, relative to the predictions' directory.
        bytes: size of the file.
        rows: predictions in it.
        content: what the rows that were scored add up to; 0 where the work vouches for them.
        faults: rows that could not be scored, as `Faults.to_json` says.
        bad_path: the file of those rows, relative to the quarantine; empty where there are none.
        bad_bytes: size of that file.
        unseen: rows with a category that is missing or that no training row had.
    """

    path: str
    bytes: int
    rows: int
    content: int
    faults: str
    bad_path: str = ""
    bad_bytes: int = 0
    unseen: int

    def is_whole(self, target: Target) -> bool:
        """Whether its files are there."""
        return store.size(join(target.predictions, self.path)) == self.bytes and (
            not self.bad_path
            or store.size(join(target.quarantine, self.bad_path)) == self.bad_bytes
        )

    def remove(self, target: Target) -> None:
        """Remove its files."""
        store.remove(join(target.predictions, self.path))
        if self.bad_path:
            store.remove(join(target.quarantine, self.bad_path))


def earlier_parts(
    commits: Commits, target: Target, contents: Mapping[int, int] | None
) -> dict[int, Part]:
    """The parts that earlier attempts made and that still hold; others are forgotten.

    Args:
        commits: the work's.
        target: where their files are.
        contents: what the rows of each part add up to now, where nothing else vouches for them.
    """
    found = {number: Part(**entry) for number, entry in commits.entries().items()}
    for number, part in list(found.items()):
        is_same = contents is None or contents.get(number) == part.content
        if not is_same or not part.is_whole(target):
            commits.forget(number)
            del found[number]
    return found


def keep_only(target: Target, parts: Iterable[Part]) -> None:
    """Remove what is no file of these parts."""
    parts = list(parts)
    for directory, paths in (
        (target.predictions, [part.path for part in parts]),
        (target.quarantine, [part.bad_path for part in parts if part.bad_path]),
    ):
        if paths:
            sweep(directory, paths)
        else:
            store.remove(directory)


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
    skipped, batches, layout, answers = frozenset(done), rows.batches, rows.layout, target.answers

    def work(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, attempt = task_attempt()
        if number in skipped:
            return
        scorer = model.scorer()
        schema = answers.schema(scorer.meta)
        path = f"{target.prefix}-{number:05d}-{attempt}.parquet"
        faults, bad, unseen, content = Faults(), BadRows(), 0, 0

        def tallied() -> Iterator[pa.RecordBatch]:
            nonlocal content
            for batch in given:
                content = (content + content_of(batch)) % 2**64
                yield batch

        with PartWriter(
            target.predictions,
            path,
            schema,
            _ROW_GROUP_ROWS,
            repeating=answers.repeating(scorer.meta),
        ) as file:
            for batch in batches(tallied()):
                faults.add(batch, layout)
                bad.add(batch)
                unseen += batch.unseen
                file.write(answers.of(batch, scorer, schema))
        aside = bad.write(target.quarantine, path)
        part = Part(
            path=path,
            bytes=file.written.bytes,
            rows=file.written.rows,
            content=content,
            faults=faults.to_json(),
            bad_path=aside.path if aside else "",
            bad_bytes=aside.bytes if aside else 0,
            unseen=unseen,
        )
        counts = settled(commits, number, part, target)
        yield pa.record_batch({"written": [json.dumps(dataclasses.asdict(counts))]})

    reports = rows.frame.mapInArrow(work, _REPORT).collect()
    return [*done.values(), *(Part(**json.loads(row["written"])) for row in reports)]


def settled(commits: Commits, number: int, part: Part, target: Target) -> Part:
    """Commit a part, and return the one that counts: another attempt's, if it was first.

    What a task of a lost driver commits late does not count: its files may be removed already.
    """
    while True:
        counts = Part(**commits.commit(number, dataclasses.asdict(part)))
        if counts == part:
            return part
        if counts.is_whole(target):
            part.remove(target)
            return counts
        commits.forget(number)


def faults_of(parts: Iterable[Part]) -> Faults:
    """The bad rows of all parts."""
    faults = Faults()
    for part in parts:
        faults.merge(Faults.from_json(part.faults))
    return faults
