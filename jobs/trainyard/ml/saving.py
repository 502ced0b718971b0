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

from trainyard.ml import hadoop

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
        """Read it."""
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        module, _, name = metadata["class"].rpartition(".")
        cls = getattr(importlib.import_module(module), name, None)
        if not (isinstance(cls, type) and issubclass(cls, self._class)):
            raise TypeError(f"{path!r} holds a {name}, and no {self._class.__name__}")
        made: Any = cls()
        made._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(made, metadata)
        file = posixpath.join(path, FILE)
        made.restore(metadata["file"], hadoop.read_bytes(self.sparkSession, file), file)
        return made


class Savable(MLWritable, MLReadable[Any]):
    """Gives a stage `save`, `write`, `load` and `read`; it is a `Saved`."""

    def write(self) -> Writer:
        """What saves it: `write().overwrite().save(path)`."""
        return Writer(self)

    @classmethod
    def read(cls) -> Reader:
        """What loads it."""
        return Reader(cls)
