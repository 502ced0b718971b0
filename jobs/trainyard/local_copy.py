"""Copies of a dataset's files on this machine, for many trainings of the same rows.

A copy holds the columns that a training reads, as they are in memory: reading it decodes nothing,
and the processes that map it share one set of pages.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from trainyard.dataset import FEATURES, LABEL, MARGIN, WEIGHT, DataFile, Dataset
from trainyard.layout import join
from trainyard.pieces import Piece, PieceReader
from trainyard.rowgroups import COPY


def local_copy(dataset: Dataset, splits: Sequence[str], directory: Path) -> Dataset:
    """A dataset with these splits alone, read from copies on this machine.

    Each file is read once, however many processes ask for it at the same time; who asks later
    finds the copy.

    Args:
        dataset: the prepared dataset.
        splits: those to copy; the others have no rows in what is returned.
        directory: where copies lie, on this machine.

    Raises:
        JobError: a file is not what dataset.json says.
    """
    place = directory / _digest(f"{dataset.directory} {dataset.fingerprint}")
    place.mkdir(parents=True, exist_ok=True)
    copied: dict[str, tuple[DataFile, ...]] = dict.fromkeys(dataset.splits, ())
    for split in splits:
        copied[split] = tuple(_copied(dataset, file, place) for file in dataset.splits[split])
    return replace(dataset, directory=str(place), splits=copied)


def _copied(dataset: Dataset, file: DataFile, place: Path) -> DataFile:
    target = place / f"{_digest(file.path)}{COPY}"
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            part = target.with_suffix(".part")
            _write(dataset, file, part)
            part.replace(target)
    return DataFile(path=target.name, row_groups=file.row_groups, bytes=target.stat().st_size)


def _write(dataset: Dataset, file: DataFile, target: Path) -> None:
    """Write a record batch for each row group."""
    columns = [FEATURES, LABEL]
    columns += [WEIGHT] * (dataset.weight is not None)
    columns += [MARGIN] * (dataset.base_margin is not None)
    reader, uri = PieceReader(dataset), join(dataset.directory, file.path)
    writer = None
    with pa.OSFile(str(target), "wb") as out:
        for group, rows in enumerate(file.row_groups):
            piece = Piece(uri=uri, group=group, group_rows=rows, start=0, rows=rows)
            table = reader.table(piece, columns)
            writer = writer or pa.ipc.new_file(out, table.schema)
            arrays = [column.combine_chunks() for column in table.columns]
            writer.write_batch(pa.record_batch(arrays, schema=table.schema))
        if writer is not None:
            writer.close()


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]
