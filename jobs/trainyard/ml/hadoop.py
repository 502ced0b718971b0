"""Small files beside what Spark ML writes, on whatever filesystem Spark finds at a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_bytes(spark: SparkSession, path: str, data: bytes) -> None:
    """Write a file."""
    fs, target = _open(spark, path)
    stream = fs.create(target, True)
    try:
        stream.write(bytearray(data))
    finally:
        stream.close()


def read_bytes(spark: SparkSession, path: str) -> bytes:
    """Read a whole file."""
    fs, source = _open(spark, path)
    stream = fs.open(source)
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def _open(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext
    target = context._jvm.org.apache.hadoop.fs.Path(path)
    return target.getFileSystem(context._jsc.hadoopConfiguration()), target
