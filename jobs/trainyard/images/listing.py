"""Which images a source names, and what tells that they are still the same.

sample:photographs                     two photographs that scikit-learn carries
/data/photos, s3://bucket/photos       every file below it, but for hidden ones
/data/photos/*.jpg                     the files that a pattern names
/data/list.txt                         a path or a URL a line; paths are relative to the list
/data/list.parquet, .csv, table:NAME   a column of them
https://host/a.jpg                     one image
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from trainyard import columns, store
from trainyard.errors import JobError
from trainyard.images.pixels import KEY
from trainyard.sources import named_format, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = "sample:photographs"

SCHEMA = pa.schema([pa.field("path", pa.string()), pa.field("fault", pa.string())])
"""`fault` says what is wrong with an image as far as its name tells, or is null."""

_URI = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)", re.IGNORECASE)
_ACCOUNTS = ("abfs", "abfss")
"""Schemes whose URIs name a container and its account: container@account."""

_LISTS = (".txt", ".lst", ".list")
_LOOKERS = 16


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The images of a source, each once.

    Attributes:
        images: of SCHEMA, in the order of the source; sorted where it has none.
        digest: of their names, and of size and time of those that lie in a store.
        repeated: how often an image was named again.
        blank: how many lines or rows name none.
    """

    images: pa.Table
    digest: str
    repeated: int = 0
    blank: int = 0


def list_images(spark: SparkSession, source: str, form: str, column: str | None) -> Listing:
    """Find out what a source names; reads no image.

    Args:
        source: see the module.
        form: how a table of names is read; `auto` goes by the name.
        column: the table's column of names; `path` without it.

    Raises:
        JobError: nothing is there, or it names no image.
    """
    if form == "auto" and source == SAMPLE:
        listing = _listing(sample_photographs())
    elif form == "auto" and named_format(source) is None:
        listing = _listed_here(source)
    else:
        name = column or KEY
        frame = open_table(spark, source, form, [name]).frame.select(columns.column(name))
        kind = frame.schema[name].dataType.simpleString()
        if kind != "string":
            raise JobError(
                f"column {name!r} of {source!r} is {kind}, and names no image.",
                "Set 'key' to a column of paths or URLs.",
            )
        listing = _listing(_from_list(frame.toArrow().column(0).to_pylist(), source))
    if not listing.images.num_rows:
        raise JobError(
            f"setting 'source' is {source!r}: it names no image.",
            "Name a folder, a pattern, or a list with images.",
        )
    return listing


def _listed_here(source: str) -> Listing:
    if scheme_of(source) in ("http", "https"):
        return _listing([source])
    if set("*?[") & set(source) and not store.exists(source):
        return _listing(_found(source, is_pattern=True))
    if not store.exists(source):
        raise JobError(f"setting 'source' is {source!r}: nothing is there.", "Check the path.")
    fs, path = store.filesystem(source)
    if fs.isdir(path):
        return _listing(_found(source, is_pattern=False))
    if not source.lower().endswith(_LISTS):
        return _listing([store.real(source)])
    try:
        text = store.read_bytes(source).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobError(
            f"setting 'source' is {source!r}: the list is not UTF-8: {error.reason}.", "Convert it."
        ) from error
    # A name may hold what `splitlines` takes for the end of a line besides.
    return _listing(_from_list(io.StringIO(text, newline=None), source))


def _found(source: str, *, is_pattern: bool) -> list[str]:
    """The files that a pattern names or that lie below a directory, sorted."""
    fs, root = store.filesystem(source)
    is_here = store.is_local(source)
    if is_pattern:
        found = fs.glob(root, detail=True)
    elif is_here:
        return sorted(_below(root, source))
    else:
        found = fs.find(root, detail=True)
    paths = [path for path, info in found.items() if info["type"] != "directory"]
    if not is_pattern:
        top = len(root.rstrip("/")) + 1
        paths = [path for path in paths if "/." not in f"/{path[top:]}"]
    return sorted(path if is_here else str(fs.unstrip_protocol(path)) for path in paths)


def _below(root: str, source: str) -> Iterator[str]:
    """The files below a directory of this machine; a link to another one counts as a file.

    Raises:
        JobError: a directory may not be read; its images would be left out without a word.
    """

    def refuse(error: OSError) -> NoReturn:
        raise JobError(
            f"setting 'source' is {source!r}: {error.filename!r} cannot be read: {error.strerror}.",
            "Let the job's user read it, or name what it may read.",
        ) from error

    for folder, folders, files in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
        for name in (*files, *links):
            if not name.startswith("."):
                yield f"{folder.rstrip('/')}/{name}"


def _from_list(names: Iterable[str | None], source: str) -> list[str]:
    """The names in a list: URIs, and paths that are relative to the list where it is a file."""
    is_here = source.startswith("table:") or store.is_local(source)
    folder = (
        str(store.local_path(source).absolute().parent)
        if is_here
        else source.rstrip("/").rpartition("/")[0]
    )
    stripped = ((name or "").strip() for name in names)
    return [
        name
        if not name or _URI.match(name) or name.startswith("/")
        else os.path.normpath(f"{folder}/{name}")
        if is_here
        else f"{folder}/{name}"
        for name in stripped
    ]


def _listing(names: Sequence[str]) -> Listing:
    given = [name for name in names if name]
    known = dict(map(_checked, given))
    with ThreadPoolExecutor(_LOOKERS) as pool:
        versions = pool.map(_version, known)
        digest = hashlib.sha256()
        for (name, fault), version in zip(known.items(), versions, strict=True):
            digest.update(f"{name}\0{fault}\0{version}\n".encode())
    named = [pa.array(known, pa.string()), pa.array(known.values(), pa.string())]
    return Listing(
        images=pa.Table.from_arrays(named, schema=SCHEMA),
        digest=digest.hexdigest(),
        repeated=len(given) - len(known),
        blank=len(names) - len(given),
    )


def _checked(name: str) -> tuple[str, str | None]:
    """A name that may be shown and kept, and what is wrong with it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        return shown, "the file's name is not UTF-8"
    uri = _URI.match(name)
    if uri and "@" in uri[2] and scheme_of(name) not in _ACCOUNTS:
        host = uri[2].rpartition("@")[2]
        return f"{uri[1]}://{host}{name[uri.end() :]}", "the URL holds a password"
    return name, None


def _version(name: str) -> str:
    """Size and time of a file; nothing for what a URL names, which only a download would tell."""
    if scheme_of(name) not in STORES:
        return ""
    try:
        fs, path = store.filesystem(name)
        info: dict[str, Any] = fs.info(path)
    except (OSError, ValueError, JobError):
        return "absent"
    stamps = (info.get(field) for field in ("size", "mtime", "LastModified", "ETag", "etag"))
    return " ".join(str(stamp) for stamp in stamps)


def scheme_of(name: str) -> str:
    """The scheme of a URI in small letters; `file` for a path."""
    uri = _URI.match(name)
    return uri[1].lower() if uri else "file"


STORES = ("file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hdfs")
"""Schemes of filesystems that a list may name files of; http and https are downloaded."""


def sample_photographs() -> list[str]:
    """The files of the sample: a palace and a daisy."""
    # Importing the package would take seconds.
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("the package scikit-learn is not installed")
    folder = Path(found.submodule_search_locations[0], "datasets", "images")
    return [str(folder / name) for name in ("china.jpg", "flower.jpg")]
