"""Which rows each rank trains on, and how it reads them from a prepared dataset."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from trainyard import store
from trainyard.dataset import FEATURES, LABEL, Dataset
from trainyard.errors import JobError, SettingError

MIXED_ROW_GROUPS = 4
"""Row groups that a streaming rank holds and shuffles together."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Some rows: features (rows, width) as float32 and labels (rows,) as int64."""

    features: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Rows:
        """The rows at an index (rows,) of int64."""
        return Rows(features=self.features[index], labels=self.labels[index])


def concatenate(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        features=torch.cat([part.features for part in parts]),
        labels=torch.cat([part.labels for part in parts]),
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How an epoch's rows are shared among ranks and steps; every rank computes the same one.

    A rank has a range of the rows; ranges differ by one row at most. Every rank takes the same
    number of steps, and its rows are spread evenly over them, so that no step has a few rows only.

    Attributes:
        rows: rows of the split.
        size: number of ranks.
        batch_size: most rows of a rank's step.
    """

    rows: int
    size: int
    batch_size: int

    @property
    def steps(self) -> int:
        """Steps of an epoch: what the largest share needs."""
        return -(-self._share(self.size - 1) // self.batch_size)

    def bounds(self, rank: int) -> tuple[int, int]:
        """First row of a rank and the one past its last."""
        return self.rows * rank // self.size, self.rows * (rank + 1) // self.size

    def batches(self, rank: int) -> list[int]:
        """Rows of a rank in each step; they may be none."""
        return self._spread(self._share(rank))

    def totals(self) -> list[int]:
        """Rows of all ranks in each step."""
        shares = Counter(self._share(rank) for rank in range(self.size))
        spread = [[count * rows for rows in self._spread(share)] for share, count in shares.items()]
        return [sum(step) for step in zip(*spread, strict=True)]

    def _share(self, rank: int) -> int:
        first, end = self.bounds(rank)
        return end - first

    def _spread(self, share: int) -> list[int]:
        steps = self.steps
        ends = [share * step // steps for step in range(1, steps + 1)]
        return [end - start for start, end in itertools.pairwise([0, *ends])]


def check_rows(rows: int, *, ranks: int, batch_size: int) -> None:
    """Refuse a training split that cannot fill one step.

    Raises:
        SettingError: showing the arithmetic.
    """
    if rows < ranks * batch_size:
        most = rows // ranks
        fix = f"Use a batch_size of {most} or less" if most else "Use fewer ranks"
        raise SettingError(
            "batch_size",
            batch_size,
            f"the training split has {rows} rows, fewer than one step's "
            f"{ranks} ranks x {batch_size} rows = {ranks * batch_size}",
            f"{fix}, or prepare more data.",
        )


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The part of a row group that belongs to a rank.

    Attributes:
        uri: the file.
        group: number of the row group in it.
        group_rows: rows of the whole group.
        start: first row of the part.
        rows: rows of the part.
    """

    uri: str
    group: int
    group_rows: int
    start: int
    rows: int


def pieces(dataset: Dataset, split: str, first: int, end: int) -> list[Piece]:
    """The parts of row groups that make up rows `first` to `end` of a split."""
    found: list[Piece] = []
    offset = 0
    for uri, file in zip(dataset.paths(split), dataset.splits[split], strict=True):
        for group, rows in enumerate(file.row_groups):
            start, stop = max(first, offset), min(end, offset + rows)
            if start < stop:
                piece = Piece(
                    uri=uri,
                    group=group,
                    group_rows=rows,
                    start=start - offset,
                    rows=stop - start,
                )
                found.append(piece)
            offset += rows
    return found


class Loader:
    """Reads one rank's rows of a split, in another order each epoch.

    Args:
        dataset: the prepared dataset.
        split: its part.
        plan: how the split's rows are shared.
        rank: whose rows to read.
        streaming: read row groups in every epoch and hold a few at a time; otherwise hold all rows.
    """

    def __init__(
        self, dataset: Dataset, split: str, plan: Plan, rank: int, *, streaming: bool
    ) -> None:
        self._width = dataset.width
        self._classes = len(dataset.classes)
        self._pieces = pieces(dataset, split, *plan.bounds(rank))
        self._batches = plan.batches(rank)
        self._rank = rank
        self._held = None if streaming else self._read(self._pieces)

    def in_order(self) -> Iterator[Rows]:
        """The rank's batches, in the order of the files."""
        return self._cut(self._buffers(self._pieces, 1), None)

    def shuffled(self, *, seed: int, epoch: int) -> Iterator[Rows]:
        """The rank's batches in the order that (seed, epoch, rank) gives.

        A streaming rank shuffles its row groups, and the rows of a few groups with each other.
        """
        rng = np.random.default_rng([seed, epoch, self._rank])
        order = [self._pieces[i] for i in rng.permutation(len(self._pieces))]
        return self._cut(self._buffers(order, MIXED_ROW_GROUPS), rng)

    def _cut(self, buffers: Iterator[Rows], rng: np.random.Generator | None) -> Iterator[Rows]:
        """Cut buffers into the rank's batches, each buffer shuffled when `rng` is given."""
        nothing = self._read(())
        rows, order = nothing, nothing.labels
        for wanted in self._batches:
            parts = [rows.take(order[:wanted])] if len(order) or not wanted else []
            order = order[wanted:]
            while (missing := wanted - sum(map(len, parts))) > 0:
                rows = nothing  # forget a buffer before the next one is read
                rows = next(buffers)
                index = np.arange(len(rows)) if rng is None else rng.permutation(len(rows))
                order = torch.from_numpy(index)
                parts.append(rows.take(order[:missing]))
                order = order[missing:]
            yield concatenate(parts)

    def _buffers(self, order: Sequence[Piece], groups: int) -> Iterator[Rows]:
        if self._held is not None:
            yield self._held
            return
        for start in range(0, len(order), groups):
            yield self._read(order[start : start + groups])

    def _read(self, parts: Sequence[Piece]) -> Rows:
        count = sum(piece.rows for piece in parts)
        features = np.empty((count, self._width), np.float32)
        labels = np.empty(count, np.int64)
        start = 0
        for piece in parts:
            end = start + piece.rows
            table = self._read_table(piece)
            features[start:end] = self._features(piece, table.column(FEATURES).combine_chunks())
            labels[start:end] = self._labels(piece, table.column(LABEL).combine_chunks())
            start = end
        return Rows(features=torch.from_numpy(features), labels=torch.from_numpy(labels))

    def _read_table(self, piece: Piece) -> pa.Table:
        fs, path = store.filesystem(piece.uri)
        try:
            with (
                fs.open(path, "rb") as source,
                pq.ParquetFile(source, page_checksum_verification=True) as file,
            ):
                if file.metadata.row_group(piece.group).num_rows != piece.group_rows:
                    raise _changed(piece, "a row group has another number of rows")
                table = file.read_row_group(
                    piece.group, columns=[FEATURES, LABEL], use_threads=False
                )
        except FileNotFoundError as error:
            raise _changed(piece, "it is not there") from error
        except (OSError, pa.ArrowException, IndexError) as error:
            raise _changed(piece, f"it cannot be read: {error}") from error
        return table.slice(piece.start, piece.rows)

    def _features(self, piece: Piece, column: pa.Array) -> npt.NDArray[np.float32]:
        if not pa.types.is_list(column.type) or column.type.value_type != pa.float32():
            raise _changed(piece, f"column {FEATURES!r} is {column.type}, not list<float>")
        lengths = pc.min_max(pc.list_value_length(column)).as_py()
        values = column.flatten()
        if column.null_count or values.null_count or set(lengths.values()) != {self._width}:
            raise _changed(
                piece, f"column {FEATURES!r} has nulls or rows that are not {self._width} wide"
            )
        rows: npt.NDArray[np.float32] = values.to_numpy().reshape(-1, self._width)
        return rows

    def _labels(self, piece: Piece, column: pa.Array) -> npt.NDArray[np.int64]:
        bounds = pc.min_max(column).as_py()
        if column.null_count or bounds["min"] < 0 or bounds["max"] >= self._classes:
            raise _changed(
                piece, f"column {LABEL!r} has nulls or values outside 0 to {self._classes - 1}"
            )
        labels: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        return labels


def _changed(piece: Piece, problem: str) -> JobError:
    return JobError(
        f"the file {piece.uri!r} does not match the dataset.json that lists it: {problem}.",
        "Run the prepare job again, into a new directory.",
    )
