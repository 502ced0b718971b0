"""Bad rows put aside: what each was, and why it is in no split."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from trainyard import store
from trainyard.canonical import ORIGINAL
from trainyard.dataset import KEY, DataFile
from trainyard.layout import QUARANTINE, join
from trainyard.parts import PartWriter, sweep, task_attempt
from trainyard.rows import Batch, Layout, classify

SCHEMA = pa.schema(
    [
        pa.field(KEY, pa.string()),
        pa.field("reason", pa.string()),
        pa.field("row", pa.string()),
    ]
)
"""The files' columns; `row` holds the original values as JSON, or a line that cannot be parsed."""

_ROW_GROUP_ROWS = 4096

_IDS = pa.schema([SCHEMA.field(KEY), SCHEMA.field("reason")])


class BadRows:
    """The keys and faults of a part's bad rows, few enough for memory."""

    def __init__(self) -> None:
        self._found: list[pa.RecordBatch] = []

    def add(self, batch: Batch) -> None:
        """Take a batch's bad rows in."""
        if batch.faults:
            keys = batch.keys.take(pa.array(batch.faults, pa.int64()))
            reasons = pa.array(batch.faults.values(), pa.string())
            self._found.append(pa.RecordBatch.from_arrays([keys, reasons], schema=_IDS))

    def write(self, directory: str, path: str) -> DataFile | None:
        """Write them as `key` and `reason`, if there are any; answer with the file.

        Raises:
            TransientError: it cannot be written.
        """
        if not self._found:
            return None
        with PartWriter(directory, path, _IDS, _ROW_GROUP_ROWS) as part:
            for rows in self._found:
                part.write(rows)
        return part.written


def write_quarantine(rows: DataFrame, layout: Layout, run_dir: str, prefix: str) -> int:
    """Write the bad rows of a table of `canonical` rows with their originals; return their number.

    Args:
        rows: the table.
        layout: its columns.
        run_dir: the run directory; the files go into `quarantine` in it.
        prefix: start of every file's name, which no other driver uses.

    Raises:
        JobError: a file cannot be written.
    """
    directory = join(run_dir, QUARANTINE)
    store.remove(directory)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, attempt = task_attempt()
        path = f"{prefix}-{partition:05d}-{attempt}.parquet"
        with PartWriter(directory, path, SCHEMA, _ROW_GROUP_ROWS) as part:
            for batch in batches:
                part.write(_bad(batch, layout))
        yield pa.record_batch({"written": [json.dumps([path, part.written.rows])]})

    found = rows.mapInArrow(work, "written string").collect()
    written = [json.loads(row["written"]) for row in found]
    sweep(directory, [path for path, _ in written])
    return sum(count for _, count in written)


def _bad(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    rows = classify(batch, layout)
    positions = pa.array(list(rows.faults), pa.int64())
    columns = [
        rows.keys.take(positions),
        pa.array(rows.faults.values(), pa.string()),
        batch.column(ORIGINAL).take(positions),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
