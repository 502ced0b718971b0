"""Files whose rows come in groups: Parquet anywhere, or the Arrow copy of one on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from trainyard import store

COPY = ".arrow"
"""End of a copy's name."""


class RowGroups(Protocol):
    """An open file."""

    @property
    def names(self) -> list[str]:
        """Names of its columns."""
        ...

    def rows(self, group: int) -> int:
        """Rows of a group; an IndexError where it has no such group."""
        ...

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Columns of a group."""
        ...

    def close(self) -> None:
        """Let it go; what was read of it stays."""
        ...


def open_groups(uri: str) -> RowGroups:
    """Open a file of a dataset, or of its copy.

    Raises:
        OSError, pyarrow.ArrowException: it cannot be read, or is neither.
    """
    if uri.endswith(COPY):
        return _Copy(uri)
    fs, path = store.filesystem(uri)
    return _Parquet(fs.open(path, "rb"))


class _Parquet:
    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        try:
            self._file = pq.ParquetFile(source, page_checksum_verification=True)
        except BaseException:
            source.close()
            raise

    @property
    def names(self) -> list[str]:
        return list(self._file.schema_arrow.names)

    def rows(self, group: int) -> int:
        return int(self._file.metadata.row_group(group).num_rows)

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        return self._file.read_row_group(group, columns=list(columns), use_threads=False)

    def close(self) -> None:
        self._file.close()
        self._source.close()


class _Copy:
    def __init__(self, path: str) -> None:
        self._file: Any = pa.ipc.open_file(pa.memory_map(path))

    @property
    def names(self) -> list[str]:
        return list(self._file.schema.names)

    def rows(self, group: int) -> int:
        return int(self._file.get_batch(group).num_rows)

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        return pa.Table.from_batches([self._file.get_batch(group)]).select(list(columns))

    def close(self) -> None: ...  # the last table that was read of it unmaps it
