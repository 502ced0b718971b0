"""A rank's rows from Parquet files: the columns that an estimator names, as matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from trainyard import store
from trainyard.dataset import REGRESSION, DataFile, Dataset
from trainyard.errors import JobError, nearest
from trainyard.horovod.pieces import Reader, Rows
from trainyard.layout import join
from trainyard.pieces import Piece

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What a row consists of.

    Attributes:
        features: columns of the model's inputs.
        labels: columns of its labels.
        weight: the column of the rows' weights, if any.
        widths: numbers of each of these columns in a row; 0 is a column of single numbers.
    """

    features: tuple[str, ...]
    labels: tuple[str, ...]
    weight: str | None
    widths: dict[str, int]

    def with_widths(self, widths: dict[str, int]) -> Columns:
        """The same columns with these widths."""
        return dataclasses.replace(self, widths=widths)

    def numbers(self, names: Sequence[str]) -> list[int]:
        """How many numbers each of some columns takes of a matrix's row."""
        return [max(1, self.widths[name]) for name in names]


class ColumnReader(Reader):
    """Reads rows of these columns; `Rows.features` and `.labels` are matrices of theirs in order.

    Args:
        dataset: the files.
        columns: what to read.
    """

    def __init__(self, dataset: Dataset, columns: Columns) -> None:
        super().__init__(dataset)
        self._columns = columns

    def read(self, parts: Sequence[Piece]) -> Rows:
        """The rows of all parts, in order.

        Raises:
            JobError: a column is missing, of another type or width, or holds what is no number.
        """
        names, of = self._columns, self._columns.numbers
        count = sum(piece.rows for piece in parts)
        features = np.empty((count, sum(of(names.features))), np.float32)
        labels = np.empty((count, sum(of(names.labels))), np.float32)
        weights = np.empty((count, 1), np.float32)
        wanted = [*names.features, *names.labels, *([names.weight] if names.weight else [])]
        start = 0
        for piece in parts:
            table = self.table(piece, wanted)
            rows = slice(start, start + piece.rows)
            self._fill(features[rows], piece, table, names.features)
            self._fill(labels[rows], piece, table, names.labels)
            if names.weight:
                self._fill(weights[rows], piece, table, (names.weight,))
            start += piece.rows
        return Rows(
            features=torch.from_numpy(features),
            labels=torch.from_numpy(labels),
            weights=torch.from_numpy(weights[:, 0]) if names.weight else None,
        )

    def _fill(self, into: Floats, piece: Piece, table: pa.Table, names: Sequence[str]) -> None:
        at = 0
        for name, width in zip(names, self._columns.numbers(names), strict=True):
            array = table.column(name).combine_chunks()
            try:
                into[:, at : at + width] = numbers(array, width)
            except ValueError as error:
                raise JobError(f"column {name!r} of {piece.uri!r} {error}.", _FIX) from error
            at += width


_FIX = "Leave such rows out before they are written, or name another column."


def numbers(array: pa.Array, width: int) -> Floats:
    """A column as float32 [rows, width].

    Raises:
        ValueError: it cannot be, with why.
    """
    if array.null_count:
        raise ValueError(f"has {array.null_count} nulls")
    if pa.types.is_struct(array.type):
        found = _vectors(array, width)
    elif is_list(array.type):
        lengths = pc.unique(pc.list_value_length(array)).to_pylist()
        if lengths not in ([width], []):
            raise ValueError(f"has rows of {lengths} numbers, not of {width}")
        found = _floats(array.flatten())
    else:
        found = _floats(array)
    matrix = found.reshape(-1, width)
    if not np.isfinite(matrix).all():
        raise ValueError("has numbers that are not finite in 32 bits")
    return matrix


def is_list(kind: pa.DataType) -> bool:
    """Whether a column holds lists."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _floats(values: pa.Array) -> Floats:
    if not (
        pa.types.is_floating(values.type)
        or pa.types.is_integer(values.type)
        or pa.types.is_boolean(values.type)
        or pa.types.is_decimal(values.type)
    ):
        raise ValueError(f"holds {values.type}, and no numbers")
    if values.null_count:
        raise ValueError(f"has {values.null_count} nulls")
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    with np.errstate(over="ignore"):
        made: Floats = values.to_numpy(zero_copy_only=False).astype(np.float32)
    return made


def _vectors(array: pa.StructArray, width: int) -> Floats:
    """Spark ML's vectors as Spark writes them: type 1 is dense, 0 sparse."""
    names = {field.name for field in array.type}
    if names != {"type", "size", "indices", "values"}:
        raise ValueError(f"holds {array.type}, and no vectors")
    made = np.zeros((len(array), width), np.float32)
    for row, vector in enumerate(array.to_pylist()):
        size = len(vector["values"]) if vector["type"] == 1 else vector["size"]
        if size != width:
            raise ValueError(f"has a vector of {size} numbers, not of {width}")
        made[row, slice(None) if vector["type"] == 1 else vector["indices"]] = vector["values"]
    return made


def found_at(directory: str, split: str) -> tuple[DataFile, ...]:
    """The Parquet files below a directory, with their row groups; none where it is not there.

    Raises:
        JobError: one cannot be read.
    """
    fs, root = store.filesystem(directory)
    fs.invalidate_cache()
    files = []
    for path in sorted(fs.find(root)):
        name = path.removeprefix(root).strip("/")
        if not name.endswith(".parquet") or name.startswith(("_", ".")):
            continue
        try:
            with fs.open(path, "rb") as source:
                footer = pq.ParquetFile(source).metadata
        except (OSError, pa.ArrowException) as error:
            raise JobError(
                f"{join(directory, name)!r}, a file of the {split} rows, is no Parquet: {error}.",
                "Write the rows again.",
            ) from error
        groups = tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups))
        files.append(DataFile(path=name, row_groups=groups, bytes=int(fs.size(path))))
    return tuple(files)


def columns_of(dataset: Dataset, split: str, wanted: Columns) -> Columns:
    """These columns with their widths, by the first rows of a split.

    Raises:
        JobError: one is missing.
    """
    uri = next(
        p for p, f in zip(dataset.paths(split), dataset.splits[split], strict=True) if f.rows
    )
    fs, path = store.filesystem(uri)
    with fs.open(path, "rb") as source:
        first = next(pq.ParquetFile(source).iter_batches(batch_size=1))
    widths = {}
    for name in wanted.widths:
        if name not in first.schema.names:
            raise JobError(f"{uri!r} has no column {name!r}.", nearest(name, first.schema.names))
        widths[name] = _width(first.column(name))
    return wanted.with_widths(widths)


def _width(array: pa.Array) -> int:
    value: Any = array[0].as_py()
    if isinstance(value, dict) and value.get("values") is not None:
        return int(value["size"]) if value.get("type") == 0 else len(value["values"])
    return len(value) if isinstance(value, list) else 0


def dataset_of(
    directory: str, columns: Columns, splits: dict[str, tuple[DataFile, ...]]
) -> Dataset:
    """Files of rows as what a loader reads."""
    return Dataset(
        directory=directory,
        fingerprint="",
        source="DataFrame",
        task=REGRESSION,
        features=columns.features,
        label=columns.labels[0],
        key=None,
        weight=columns.weight,
        width=sum(columns.numbers(columns.features)),
        classes=(),
        splits=splits,
    )
