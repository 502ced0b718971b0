"""Parquet files that Spark's tasks write and read on any filesystem, in row groups of one size."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from trainyard import store
from trainyard.dataset import (
    CATEGORIES,
    FEATURES,
    KEEP,
    KEY,
    LABEL,
    MARGIN,
    REGRESSION,
    VALUES,
    WEIGHT,
    DataFile,
    Dataset,
)
from trainyard.errors import JobError
from trainyard.layout import join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TYPES = {
    KEY: pa.string(),
    FEATURES: pa.list_(pa.float32()),
    LABEL: pa.int64(),
    WEIGHT: pa.float64(),
    MARGIN: pa.list_(pa.float64()),
    KEEP: pa.list_(pa.string()),
    VALUES: pa.list_(pa.float64()),
    CATEGORIES: pa.list_(pa.string()),
}


def file_schema(
    *,
    task: str,
    has_weight: bool = False,
    has_margin: bool = False,
    has_keep: bool = False,
    is_preprocessed: bool = False,
) -> pa.Schema:
    """The columns of a prepared dataset's files; see `dataset`."""
    types = dict(_TYPES)
    if task == REGRESSION:
        types[LABEL] = pa.float64()
    absent = {
        *((WEIGHT,) if not has_weight else ()),
        *((MARGIN,) if not has_margin else ()),
        *((KEEP,) if not has_keep else ()),
        *((VALUES, CATEGORIES) if not is_preprocessed else ()),
    }
    return pa.schema([pa.field(name, kind) for name, kind in types.items() if name not in absent])


def schema_of(dataset: Dataset, *names: str) -> pa.Schema:
    """The columns of a dataset's files; of those named only that are there, if any are named."""
    whole = file_schema(
        task=dataset.task,
        has_weight=dataset.weight is not None,
        has_margin=dataset.base_margin is not None,
        has_keep=bool(dataset.keep),
        is_preprocessed=dataset.preprocessing is not None,
    )
    return pa.schema([field for field in whole if not names or field.name in names])


class PartWriter:
    """Writes one Parquet file in row groups of `row_group_rows`, holding one group in memory.

    A file that cannot be finished is removed, so that a full store has room to say so.

    Args:
        directory: directory that the file's path is relative to.
        path: the file's path; no other task may have it.
        repeating: top-level columns whose values repeat, which alone get a dictionary; all by
            default, though building one for values that hardly repeat takes time.
    """

    def __init__(
        self,
        directory: str,
        path: str,
        schema: pa.Schema,
        row_group_rows: int,
        *,
        repeating: Sequence[str] | None = None,
    ) -> None:
        self._uri = join(directory, path)
        self._path = path
        self._schema = schema
        self._rows = row_group_rows
        self._dictionaries: bool | list[str] = True if repeating is None else list(repeating)
        self._pending: list[pa.RecordBatch] = []
        self._groups: list[int] = []

    def __enter__(self) -> Self:
        with self._writing():
            fs, path = store.filesystem(self._uri)
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._file = fs.open(path, "wb")
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                use_dictionary=self._dictionaries,
                write_page_checksum=True,
            )
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._pending.append(batch)
        while sum(b.num_rows for b in self._pending) >= self._rows:
            self._write_group()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._discard()
            return
        with self._writing():
            if self._pending:
                self._write_group()
            self._writer.close()
            self._bytes = int(self._file.tell())
            self._file.close()

    @property
    def written(self) -> DataFile:
        """The file, once it is closed."""
        return DataFile(path=self._path, row_groups=tuple(self._groups), bytes=self._bytes)

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._pending, self._schema)
        with self._writing():
            self._writer.write_table(table.slice(0, self._rows), row_group_size=self._rows)
        self._groups.append(min(self._rows, table.num_rows))
        rest = table.slice(self._rows).combine_chunks()
        self._pending = rest.to_batches()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with store.writing(repr(self._uri)):
            try:
                yield
            except OSError:
                self._discard()
                raise

    def _discard(self) -> None:
        with suppress(OSError):
            store.remove(self._uri)


def lists(matrix: np.ndarray[Any, Any]) -> pa.Array:
    """A matrix as a column of lists of the same type."""
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    rows, width = matrix.shape
    return pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * width, flat)


def task_attempt() -> tuple[int, int]:
    """The number of this task's partition, and a number that no other attempt of the job has."""
    context = TaskContext.get()
    return (context.partitionId(), context.taskAttemptId()) if context else (0, 0)


def sweep(directory: str, kept: Sequence[str]) -> None:
    """Remove what failed task attempts left in the folders of the files that are kept.

    Args:
        directory: where the files lie.
        kept: their paths in it.
    """
    keep = {join(directory, path) for path in kept}
    for folder in {path.rpartition("/")[0] for path in kept}:
        for name in store.list_names(join(directory, folder)):
            path = join(directory, folder, name)
            if path not in keep:
                store.remove(path)


_GATHERED_BYTES = 16 * 1024**2

Unit = tuple[str, int, int]
"""Path of a prepared file, the number of a row group in it, and the rows that it has."""

UNITS = "path string, row_group int, rows int"
"""Spark's schema of units."""


def units(dataset: Dataset, split: str) -> list[Unit]:
    """The row groups of a split, in order."""
    return [
        (join(dataset.directory, file.path), group, rows)
        for file in dataset.splits[split]
        for group, rows in enumerate(file.row_groups)
    ]


def cut(dataset: Dataset, splits: Sequence[str], most: int) -> list[list[Unit]]:
    """The row groups of some splits in order, cut into `most` parts or fewer; one at least."""
    found = [unit for split in splits for unit in units(dataset, split)]
    count = max(1, min(most, len(found)))
    bounds = [len(found) * number // count for number in range(count + 1)]
    return [found[start:stop] for start, stop in itertools.pairwise(bounds)]


def part_numbers(spark: SparkSession, parts: Sequence[Sequence[Unit]]) -> DataFrame:
    """A frame of the parts' numbers, each in the partition of that number; see `read_parts`."""
    return spark.range(0, len(parts), 1, len(parts))


def read_parts(
    batches: Iterator[pa.RecordBatch], parts: Sequence[Sequence[Unit]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read the parts that batches of `part_numbers` name, several row groups at a time.

    See `read_units` for the errors.
    """
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for tables in _gathered(_read_groups(parts[number], schema)):
                yield from pa.concat_tables(tables).combine_chunks().to_batches()


def _gathered(tables: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    """Tables in lists of some size: trees score many rows at once faster than a few at a time."""
    some: list[pa.Table] = []
    for table in tables:
        some.append(table)
        if sum(each.nbytes for each in some) >= _GATHERED_BYTES:
            yield some
            some = []
    if some:
        yield some


def read_units(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the row groups that batches of units name, one at a time.

    Args:
        batches: units.
        schema: the columns to read.

    Raises:
        JobError: a file is gone or does not match dataset.json.
    """
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        for table in _read_groups(zip(*columns, strict=True), schema):
            yield from table.to_batches()


def _read_groups(units: Iterable[Unit], schema: pa.Schema) -> Iterator[pa.Table]:
    """The row groups of some units, each file opened once for those that follow each other."""
    for path, of_file in itertools.groupby(units, key=itemgetter(0)):
        with ExitStack() as opened:
            file: pq.ParquetFile | None = None
            for _, group, rows in of_file:
                with _as_described(path, group):
                    file = file or _open(path, opened)
                    table = file.read_row_group(group, columns=schema.names).cast(schema)
                if table.num_rows != rows:
                    raise _changed(path, group, f"it has {table.num_rows} rows, not {rows}")
                yield table


def _open(path: str, opened: ExitStack) -> pq.ParquetFile:
    fs, name = store.filesystem(path)
    return pq.ParquetFile(
        opened.enter_context(fs.open(name, "rb")), page_checksum_verification=True
    )


@contextmanager
def _as_described(path: str, row_group: int) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, IndexError, KeyError, ValueError) as error:
        raise _changed(path, row_group, str(error)) from error


def _changed(path: str, row_group: int, problem: str) -> JobError:
    return JobError(
        f"row group {row_group} of {path!r} is not as dataset.json describes it: {problem}.",
        "Run the prepare job again.",
    )


def matrix(column: pa.Array, width: int) -> np.ndarray[Any, Any]:
    """A column of float32 lists, all of one width, as a matrix."""
    flat: np.ndarray[Any, Any] = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(-1, width)
