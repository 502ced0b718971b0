"""MNIST's own files: images and labels in the IDX format, plain or gzipped.

    train-images-idx3-ubyte   train-labels-idx1-ubyte      part "train"
    t10k-images-idx3-ubyte    t10k-labels-idx1-ubyte       part "test"

A source is a directory with one pair or both, or one file of a pair. Rows have `id` (`train-0`),
`pixels`, `digit` and `part`, so that the customary split is a split by the column `part`. EMNIST,
Fashion-MNIST and others come in the same form.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from trainyard import store
from trainyard.errors import JobError
from trainyard.layout import join

_NAME = re.compile(r"(?P<set>.+)-(?P<kind>images|labels)[-.]idx[13]-ubyte(?P<gz>\.gz)?")
_MAGIC = {"images": 2051, "labels": 2049}
_ROWS = 5_000
"""Rows that a task reads."""

_PIECE = "stem string, images string, labels string, start int, rows int, width int"
_TABLE = "id string, pixels array<float>, digit bigint, part string"


def is_file(name: str) -> bool:
    """Whether a path has the name of one of these files."""
    return _NAME.fullmatch(name.rstrip("/").rpartition("/")[2]) is not None


def read(spark: SparkSession, source: str) -> DataFrame:
    """The rows of a source; only the files' headers are read now.

    Raises:
        JobError: a file has no partner, is no such file, or has fewer bytes than its header says.
    """
    pieces = [
        (stem, images, labels, start, min(_ROWS, rows - start), width)
        for stem, images, labels in _pairs(source)
        for rows, width in [_shape(images, labels)]
        for start in range(0, rows, _ROWS)
    ]
    frame = spark.createDataFrame(pieces, _PIECE).repartition(max(1, len(pieces)))
    return frame.mapInArrow(_read_pieces, _TABLE)


def _pairs(source: str) -> list[tuple[str, str, str]]:
    folder, _, name = source.rstrip("/").rpartition("/")
    wanted = _NAME.fullmatch(name)
    names = store.list_names(folder or ".") if wanted else store.list_names(source)
    root = (folder or ".") if wanted else source
    found: dict[str, dict[str, str]] = {}
    for match in filter(None, map(_NAME.fullmatch, names)):
        if wanted is None or match["set"] == wanted["set"]:
            found.setdefault(match["set"], {})[match["kind"]] = join(root, match[0])
    for stem, files in found.items():
        for kind in _MAGIC:
            if kind not in files:
                raise JobError(
                    f"setting 'source' is {source!r}: {stem!r} has no {kind} file.",
                    f"Put {stem}-{kind}-idx{'3' if kind == 'images' else '1'}-ubyte beside the "
                    "other, gzipped or not.",
                )
    if not found:
        raise JobError(
            f"setting 'source' is {source!r}: there is no IDX file.",
            "Name a directory that holds train-images-idx3-ubyte and train-labels-idx1-ubyte.",
        )
    return [(stem, files["images"], files["labels"]) for stem, files in sorted(found.items())]


def _shape(images: str, labels: str) -> tuple[int, int]:
    """Rows of a pair of files, and the width of one."""
    count, *sides = _header(images, "images")
    (labelled,) = _header(labels, "labels")
    if count != labelled:
        raise JobError(
            f"{images!r} has {count} images, but {labels!r} has {labelled} labels.",
            "Use the two files of one set.",
        )
    return count, int(np.prod(sides))


def _header(uri: str, kind: str) -> list[int]:
    with _opened(uri) as file:
        magic = int.from_bytes(file.read(4))
        if magic != _MAGIC[kind]:
            raise JobError(
                f"{uri!r} is no IDX file of {kind}: it begins with {magic}, not {_MAGIC[kind]}.",
                "Check the file; a download that went wrong is often a page of HTML.",
            )
        return [int.from_bytes(file.read(4)) for _ in range(3 if kind == "images" else 1)]


def _read_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for piece in batch.to_pylist():
            start, rows, width, stem = (piece[k] for k in ("start", "rows", "width", "stem"))
            pixels = _bytes(piece["images"], 16 + start * width, rows * width)
            digits = _bytes(piece["labels"], 8 + start, rows)
            flat = pa.array(pixels.astype(np.float32))
            offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
            yield pa.record_batch(
                {
                    "id": [f"{stem}-{start + i}" for i in range(rows)],
                    "pixels": pa.ListArray.from_arrays(offsets, flat),
                    "digit": pa.array(digits.astype(np.int64)),
                    "part": pa.array(["test" if stem in ("t10k", "test") else "train"] * rows),
                }
            )


def _bytes(uri: str, start: int, count: int) -> np.ndarray[Any, Any]:
    with _opened(uri) as file:
        file.seek(start)
        data = file.read(count)
    if len(data) != count:
        raise JobError(
            f"{uri!r} ends after {start + len(data)} bytes, but its header promises more.",
            "Get the file again.",
        )
    return np.frombuffer(data, np.uint8)


@contextmanager
def _opened(uri: str) -> Iterator[IO[bytes]]:
    fs, path = store.filesystem(uri)
    try:
        with fs.open(path, "rb") as raw:
            if uri.endswith(".gz"):
                with gzip.open(raw, "rb") as plain:
                    yield plain
            else:
                yield raw
    except (EOFError, gzip.BadGzipFile) as error:
        raise JobError(f"{uri!r} is damaged: {error}.", "Get the file again.") from error
