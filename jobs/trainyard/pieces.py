"""Reads a rank's part of a prepared dataset's files, and checks what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.dataset import (
    CLASSIFICATION,
    FEATURES,
    KEY,
    LABEL,
    MARGIN,
    WEIGHT,
    Dataset,
)
from trainyard.errors import JobError
from trainyard.rowgroups import RowGroups, open_groups


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


def bounds(rows: int, rank: int, size: int) -> tuple[int, int]:
    """First row of a rank and the one past its last; ranks differ by one row at most."""
    return rows * rank // size, rows * (rank + 1) // size


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


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """Some rows.

    Attributes:
        features: float32 [rows, width]; NaN is a missing number.
        labels: [rows] as int64, an index into the classes; for a regression float32, the value.
        weights: float32 [rows], if the dataset has weights.
        margins: float32 [rows, margins], if the dataset has base margins.
    """

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[Any]
    weights: npt.NDArray[np.float32] | None = None
    margins: npt.NDArray[np.float32] | None = None


class PieceReader:
    """Reads pieces of a dataset, and refuses what its dataset.json does not promise.

    The file that was read last stays open.

    Args:
        dataset: the prepared dataset.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._width = dataset.width
        self._classes = len(dataset.classes) if dataset.task == CLASSIFICATION else None
        self._weighted = dataset.weight is not None
        self._margins = dataset.margins if dataset.base_margin is not None else 0
        self._file: tuple[str, RowGroups] | None = None

    def arrays(self, parts: Sequence[Piece]) -> Arrays:
        """The rows of all parts, in order."""
        count = sum(piece.rows for piece in parts)
        features = np.empty((count, self._width), np.float32)
        labels = np.empty(count, np.float32 if self._classes is None else np.int64)
        weights = np.empty(count if self._weighted else 0, np.float32)
        margins = np.empty((count if self._margins else 0, self._margins), np.float32)
        columns = [FEATURES, LABEL]
        columns += [WEIGHT] * self._weighted + [MARGIN] * bool(self._margins)
        start = 0
        for piece in parts:
            end = start + piece.rows
            table = self.table(piece, columns)
            features[start:end] = self._features(piece, table.column(FEATURES).combine_chunks())
            labels[start:end] = self._labels(piece, table.column(LABEL).combine_chunks())
            if self._weighted:
                weights[start:end] = _weights(piece, table.column(WEIGHT).combine_chunks())
            if self._margins:
                given = table.column(MARGIN).combine_chunks()
                margins[start:end] = _matrix(piece, MARGIN, given, self._margins)
            start = end
        return Arrays(
            features=features,
            labels=labels,
            weights=weights if self._weighted else None,
            margins=margins if self._margins else None,
        )

    def keys(self, parts: Sequence[Piece]) -> pa.Array:
        """The keys of all parts, in order."""
        found = [self.table(piece, [KEY]).column(KEY).combine_chunks() for piece in parts]
        return pa.concat_arrays([pa.array([], pa.string()), *found])

    def labels(self, parts: Sequence[Piece]) -> npt.NDArray[Any]:
        """The labels of all parts, in order; reads nothing else."""
        found = [
            self._labels(piece, self.table(piece, [LABEL]).column(LABEL).combine_chunks())
            for piece in parts
        ]
        kind = np.float32 if self._classes is None else np.int64
        return np.concatenate([np.empty(0, kind), *found])

    def class_rows(self, parts: Sequence[Piece]) -> npt.NDArray[np.float64]:
        """How many rows each class has, [classes]."""
        assert self._classes is not None  # noqa: S101 - asked of a classification alone
        counts = np.zeros(self._classes)
        for piece in parts:
            counts += np.bincount(self.labels([piece]), minlength=self._classes)
        return counts

    def _features(self, piece: Piece, column: pa.Array) -> npt.NDArray[np.float32]:
        if not pa.types.is_list(column.type) or column.type.value_type != pa.float32():
            raise _changed(piece, f"column {FEATURES!r} is {column.type}, not list<float>")
        return _matrix(piece, FEATURES, column, self._width)

    def _labels(self, piece: Piece, column: pa.Array) -> npt.NDArray[Any]:
        if self._classes is None:
            return _numbers(piece, LABEL, column)
        if not pa.types.is_integer(column.type):
            raise _changed(piece, f"column {LABEL!r} is {column.type}, not a whole number")
        bounds = pc.min_max(column).as_py()
        if column.null_count or bounds["min"] < 0 or bounds["max"] >= self._classes:
            raise _changed(
                piece, f"column {LABEL!r} has nulls or values outside 0 to {self._classes - 1}"
            )
        labels: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        return labels

    def table(self, piece: Piece, columns: Sequence[str]) -> pa.Table:
        """Columns of a piece as they are stored."""
        try:
            file = self._open(piece.uri)
            if file.rows(piece.group) != piece.group_rows:
                raise _changed(piece, "a row group has another number of rows")
            missing = set(columns) - set(file.names)
            if missing:
                raise _changed(piece, f"it has no column {', '.join(sorted(missing))}")
            table = file.read(piece.group, columns)
        except FileNotFoundError as error:
            raise _changed(piece, "it is not there") from error
        except (OSError, pa.ArrowException, IndexError) as error:
            raise _changed(piece, f"it cannot be read: {error}") from error
        return table.slice(piece.start, piece.rows)

    def _open(self, uri: str) -> RowGroups:
        if self._file is None or self._file[0] != uri:
            if self._file is not None:
                self._file[1].close()
            self._file = None
            self._file = uri, open_groups(uri)
        return self._file[1]


def _matrix(piece: Piece, name: str, column: pa.Array, width: int) -> npt.NDArray[np.float32]:
    lengths = pc.min_max(pc.list_value_length(column)).as_py()
    values = column.flatten()
    if column.null_count or values.null_count or set(lengths.values()) != {width}:
        raise _changed(piece, f"column {name!r} has nulls or rows that are not {width} wide")
    rows: npt.NDArray[np.float32] = values.to_numpy().reshape(-1, width)
    return rows


def _weights(piece: Piece, column: pa.Array) -> npt.NDArray[np.float32]:
    weights = _numbers(piece, WEIGHT, column)
    if weights.size and weights.min() < 0:
        raise _changed(piece, f"column {WEIGHT!r} has a negative number")
    return weights


def _numbers(piece: Piece, name: str, column: pa.Array) -> npt.NDArray[np.float32]:
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise _changed(piece, f"column {name!r} is {column.type}, not a number")
    with np.errstate(over="ignore"):
        numbers: npt.NDArray[np.float32] = column.to_numpy(zero_copy_only=False).astype(np.float32)
    if column.null_count or not np.isfinite(numbers).all():
        raise _changed(
            piece, f"column {name!r} has nulls or numbers that are not finite in 32 bits"
        )
    return numbers


def _changed(piece: Piece, problem: str) -> JobError:
    return JobError(
        f"the file {piece.uri!r} does not match the dataset.json that lists it: {problem}.",
        "Run the prepare job again, into a new directory.",
    )
