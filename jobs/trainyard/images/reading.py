"""Reads and decodes images in threads, ahead of the network that labels them."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from trainyard import store
from trainyard.errors import TransientError
from trainyard.images.fetching import Fetcher, too_large
from trainyard.images.listing import STORES, scheme_of
from trainyard.images.pixels import BadImageError, Limits, Pixels
from trainyard.rows import Batch

Matrix = np.ndarray[Any, Any]


class ImageReader:
    """Makes a network's rows of images; threads share it.

    Args:
        pixels: how the network takes an image.
        shape: of a row as the network takes it: [3, height, width].
        limits: what an image may cost.
    """

    def __init__(self, pixels: Pixels, shape: tuple[int, ...], limits: Limits) -> None:
        _, self._height, self._width = shape
        self._pixels = pixels
        self._mean, self._std = (
            np.array(values, np.float32).reshape(3, 1, 1) for values in (pixels.mean, pixels.std)
        )
        self._limits = limits
        self._fetcher = Fetcher(limits)

    def row(self, path: str) -> Matrix:
        """A row of float32 [3 x height x width].

        Raises:
            BadImageError: the image cannot be had or seen.
            TransientError: its store does not answer.
        """
        from trainyard.images.decoding import decode  # tables need no Pillow

        found = decode(self.read(path), self._height, self._width, self._pixels.crop)
        row: Matrix = ((found.transpose(2, 0, 1) - self._mean) / self._std).reshape(-1)
        return row

    def read(self, path: str) -> bytes:
        """The content of a file or of what a URL names; see `row` for the errors."""
        scheme = scheme_of(path)
        if scheme in ("http", "https"):
            return self._fetcher.fetch(path)
        if scheme not in STORES:
            raise BadImageError(f"{scheme}:// is not read")
        try:
            if scheme == "file":
                data = self._read_here(path)
            else:
                fs, name = store.filesystem(path)
                with fs.open(name, "rb") as file:
                    data = file.read(self._limits.bytes + 1)
        except FileNotFoundError as error:
            raise BadImageError("nothing is there") from error
        except PermissionError as error:
            raise BadImageError("the file may not be read") from error
        except (OSError, ValueError) as error:
            # A name that can be none or is too long, a disk's bad sector.
            if scheme == "file" or isinstance(error, ValueError):
                raise BadImageError(f"the file cannot be read ({type(error).__name__})") from error
            raise TransientError(
                f"{path!r} cannot be read: {type(error).__name__}: {error}.",
                "Check the store and the job's credentials for it.",
            ) from error
        if len(data) > self._limits.bytes:
            raise BadImageError(too_large(self._limits.bytes))
        return data

    def _read_here(self, path: str) -> bytes:
        name = store.local_path(path)
        if not stat.S_ISREG(os.stat(name).st_mode):  # noqa: PTH116 - a pipe would never end
            raise BadImageError("the path names no file")
        with name.open("rb") as file:
            return file.read(self._limits.bytes + 1)


def image_batches(
    listed: Iterator[pa.RecordBatch], reader: ImageReader, size: int, threads: int, width: int
) -> Iterator[Batch]:
    """The images that batches of `listing.SCHEMA` name, `size` at a time, the next ones read ahead.

    Args:
        listed: their names.
        reader: makes a row of each.
        size: images of a batch; the last one may have fewer.
        threads: that read and decode.
        width: numbers of a row.
    """
    waiting: deque[tuple[pa.RecordBatch, list[Future[Matrix | str]]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for names in _slices(listed, size):
            rows = zip(*(column.to_pylist() for column in names.columns), strict=True)
            tasks = [pool.submit(_row_or_fault, reader, path, fault) for path, fault in rows]
            waiting.append((names, tasks))
            if len(waiting) > 1:
                yield _batch(*waiting.popleft(), width)
        while waiting:
            yield _batch(*waiting.popleft(), width)


def _row_or_fault(reader: ImageReader, path: str, fault: str | None) -> Matrix | str:
    if fault is not None:
        return fault
    try:
        return reader.row(path)
    except BadImageError as error:
        return str(error)


def _batch(names: pa.RecordBatch, tasks: list[Future[Matrix | str]], width: int) -> Batch:
    values = np.zeros((len(tasks), width), np.float32)
    faults = {}
    for number, task in enumerate(tasks):
        found = task.result()
        if isinstance(found, str):
            faults[number] = found
        else:
            values[number] = found
    return Batch(values=values, keys=names.column(0), faults=faults)


def _slices(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)
