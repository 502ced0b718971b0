"""Saves and loads a stage of a Spark ML pipeline: Spark ML's metadata, and a file beside it."""

from __future__ import annotations

import importlib
import posixpath
from typing import Any, Protocol

from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

from trainyard.errors import JobError
from trainyard.ml import hadoop, objects

FILE = "objects.bin"


class Saved(Protocol):
    """A stage that can be saved."""

    def saved(self) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """Its plain parameters, what describes the file, and the file."""

    def restore(self, described: dict[str, Any], data: bytes, path: str) -> None:
        """Take back what `saved` gave besides the parameters."""


class Writer(MLWriter):
    """Writes a stage."""

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def saveImpl(self, path: str) -> None:  # noqa: N802 - Spark ML's own name
        """Write it; called by `save`."""
        params, described, data = self.instance.saved()
        spark = self.sparkSession
        DefaultParamsWriter.saveMetadata(
            self.instance, path, spark, extraMetadata={"file": described}, paramMap=params
        )
        hadoop.write_bytes(spark, posixpath.join(path, FILE), data)


class Reader(MLReader[Any]):
    """Reads a stage."""

    def __init__(self, cls: type) -> None:
        super().__init__()
        self._class = cls

    def load(self, path: str) -> Any:
        """Read it.

        Raises:
            JobError: it is another kind of stage, or a pickle, and the user did not choose those.
        """
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        made: Any = self._class_of(metadata["class"], path)()
        if metadata["file"].get("kind") == "pickle":
            self._check_choice(path)
        made._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(made, metadata)
        file = posixpath.join(path, FILE)
        made.restore(metadata["file"], hadoop.read_bytes(self.sparkSession, file), file)
        return made

    def _class_of(self, address: str, path: str) -> type:
        module, _, name = address.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ImportError:
            found = None
        if not (isinstance(found, type) and issubclass(found, self._class)):
            wanted = f"{self._class.__module__}.{self._class.__name__}"
            raise JobError(
                f"{path!r} holds a {address}, and no {wanted}.", "Load it as what it is."
            )
        return found

    def _check_choice(self, path: str) -> None:
        if str(self.sparkSession.conf.get(objects.LOADING, "false")).lower() != "true":
            raise JobError(
                f"{path!r} holds a pickle, and loading one runs code of whoever wrote it.",
                "If you trust all who can write there, set Spark's "
                f"{objects.LOADING} to true, as by spark.conf.set.",
            )


class Savable(MLWritable, MLReadable[Any]):
    """Gives a stage `save`, `write`, `load` and `read`; it is a `Saved`."""

    def write(self) -> Writer:
        """What saves it: `write().overwrite().save(path)`."""
        return Writer(self)

    @classmethod
    def read(cls) -> Reader:
        """What loads it."""
        return Reader(cls)
