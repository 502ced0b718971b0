"""Whole objects on any filesystem: read, write at once, create once, list.

Nothing here appends or renames on an object store. On a local disk an object is written beside its
name and moved there, so that a reader sees all of it or nothing.
"""

from __future__ import annotations

import functools
import json
import os
import posixpath
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from trainyard.access import options_for
from trainyard.errors import JobError, TransientError
from trainyard.layout import join

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Args = ParamSpec("Args")
T = TypeVar("T")


def is_local(uri: str) -> bool:
    """Whether a URI names a path on this machine's filesystem."""
    return urlsplit(uri).scheme in ("", "file")


def local_path(uri: str) -> Path:
    """The path that a local URI names, however many slashes follow its `file:`."""
    return Path(re.sub(r"^file:(//(?=/))?", "", uri))


def real(uri: str) -> str:
    """One spelling of all those of a path or URI: absolute, without links, dots and empty parts."""
    if is_local(uri):
        return str(local_path(uri).resolve())
    scheme, host, path, *_ = urlsplit(uri)
    return f"{scheme}://{host}/{posixpath.normpath(path.strip('/')) if path.strip('/') else ''}"


def matches(uri: str) -> list[str]:
    """What a path or a pattern of paths names, in the spelling of `real`; itself if nothing."""
    if not set("*?[{") & set(uri):
        return [real(uri)]
    fs, path = filesystem(str(local_path(uri).absolute()) if is_local(uri) else uri)
    return [real(fs.unstrip_protocol(str(found))) for found in fs.glob(path)] or [real(uri)]


def is_missing_here(uri: str) -> bool:
    """Whether a path on this machine names nothing; a pattern may name something."""
    return is_local(uri) and not set("*?[{") & set(uri) and not local_path(uri).exists()


def filesystem(uri: str) -> tuple[AbstractFileSystem, str]:
    """The filesystem of a URI and the path in it.

    Raises:
        JobError: no filesystem is installed for the URI's scheme.
    """
    from fsspec.core import url_to_fs

    try:
        fs, path = url_to_fs(uri, **options_for(uri))
    except (ImportError, ValueError) as error:
        scheme = urlsplit(uri).scheme
        raise JobError(
            f"{uri!r} cannot be reached: {error}.",
            f"Install the fsspec package for {scheme}:// in this environment, or use another path.",
        ) from error
    return fs, path


def _with_os_errors(fn: Callable[Args, T]) -> Callable[Args, T]:
    """Let what goes wrong at an object store be an OSError, as it is on a disk.

    Each fsspec filesystem has errors of its own, and not all of them are: a bucket that cannot be
    reached is none to s3fs.
    """

    @functools.wraps(fn)
    def told(*args: Args.args, **kwargs: Args.kwargs) -> T:
        try:
            return fn(*args, **kwargs)
        except (OSError, JobError):
            raise
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from error

    return told


@_with_os_errors
def exists(uri: str) -> bool:
    """Whether an object or directory is there now."""
    fs, path = filesystem(uri)
    fs.invalidate_cache()
    return bool(fs.exists(path))


@_with_os_errors
def size(uri: str) -> int | None:
    """Bytes of an object, or None where none is."""
    fs, path = filesystem(uri)
    fs.invalidate_cache()
    try:
        return int(fs.size(path))
    except FileNotFoundError:
        return None


@_with_os_errors
def read_bytes(uri: str, *, most: int | None = None) -> bytes:
    """The whole object, or at most its first bytes.

    Raises:
        FileNotFoundError: nothing is there.
    """
    fs, path = filesystem(uri)
    return bytes(fs.cat_file(path, end=most))


@_with_os_errors
def write_bytes(uri: str, data: bytes) -> None:
    """Write the whole object, replacing what was there."""
    if is_local(uri):
        target = local_path(uri)
        part = _write_part(target, data)
        part.replace(target)
        return
    fs, path = filesystem(uri)
    fs.pipe_file(path, data)


@_with_os_errors
def create_bytes(uri: str, data: bytes) -> bool:
    """Write the whole object if nothing is there; say whether this call made it."""
    try:
        if is_local(uri):
            target = local_path(uri)
            part = _write_part(target, data)
            try:
                os.link(part, target)
            finally:
                part.unlink()
        else:
            fs, path = filesystem(uri)
            fs.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    return True


def _write_part(target: Path, data: bytes) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as part:
            part.write(data)
            part.flush()
            os.fsync(part.fileno())
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


@_with_os_errors
def list_names(uri: str) -> list[str]:
    """The names in a directory, sorted; none when it is not there, and no unfinished object."""
    if is_local(uri):
        try:
            names = os.listdir(local_path(uri))  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return []
    else:
        fs, path = filesystem(uri)
        fs.invalidate_cache()
        try:
            names = [
                str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in fs.ls(path, detail=False)
            ]
        except FileNotFoundError:
            return []
    return sorted(name for name in names if not name.endswith(".part"))


def read_json(uri: str) -> Any:
    """The value of a JSON object; see `read_bytes` for the errors."""
    return json.loads(read_bytes(uri))


def write_json(uri: str, value: Any) -> None:
    """Write a value as JSON, replacing what was there.

    Raises:
        ValueError: the value holds a NaN or an infinity, which JSON has not.
    """
    write_bytes(uri, to_json(value))


def to_json(value: Any) -> bytes:
    """A value as JSON that every reader accepts."""
    return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False).encode() + b"\n"


@_with_os_errors
def copy(source: str, target: str) -> None:
    """Copy all objects under a directory into another one, on any two filesystems."""
    fs, root = filesystem(source)
    for path in fs.find(root):
        write_bytes(join(target, path.removeprefix(root)), bytes(fs.cat_file(path)))


@_with_os_errors
def remove(uri: str) -> None:
    """Remove an object or a directory with all in it, if it is there."""
    fs, path = filesystem(uri)
    fs.invalidate_cache()
    if fs.exists(path):
        fs.rm(path, recursive=True)


def within(root: str, uri: str) -> str | None:
    """The path of a URI relative to a directory; None where it is not in it, or by a link only.

    However both are spelled, and also where a link leads to the directory itself.
    """
    if is_local(root) != is_local(uri) or ".." in uri.split("/"):
        return None
    if not is_local(root):
        top, path = real(root), real(uri)
        return path.removeprefix(top + "/") if path.startswith(top + "/") else None
    target, top_path = local_path(uri), local_path(root).resolve()
    for parent in target.parents if target.is_absolute() else ():
        if parent.resolve() == top_path:
            relative = target.relative_to(parent)
            inside = (top_path / relative).resolve() == top_path / relative
            return str(relative) if inside else None
    return None


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Say what could not be written, where the block's writing fails.

    Args:
        what: the object, as a reader of the error knows it.

    Raises:
        TransientError: naming it and what the filesystem answered.
    """
    try:
        yield
    except OSError as error:
        raise TransientError(
            f"{what} cannot be written: {error}.",
            "Free some space, make it writable for the job's user, or use another run directory.",
        ) from error


@contextmanager
def reading(uri: str, what: str, *, missing: JobError, fix: str) -> Iterator[None]:
    """Say what is wrong with a JSON object, where the block cannot make of it what it should be.

    Args:
        uri: the object.
        what: what it should describe, with its article.
        missing: raised where nothing is there.
        fix: what to do where it describes something else.

    Raises:
        JobError: likewise.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise missing from error
    except (KeyError, TypeError, ValueError) as error:
        raise JobError(f"{uri!r} does not describe {what}: {error!r}.", fix) from error


def check_writable(uri: str) -> None:
    """Prove that a directory can be written; see `writing` for the error."""
    probe = join(uri, f".probe-{uuid.uuid4().hex}")  # others may prove it at the same time
    with writing(f"the directory {uri!r}"):
        write_bytes(probe, b"probe\n")
        remove(probe)
