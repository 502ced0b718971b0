"""Columns of a table by their exact name, as the types that rows are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    NumericType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


def column(name: str) -> Column:
    """The column of exactly this name, whatever characters it holds."""
    return F.col("`" + name.replace("`", "``") + "`")


def is_vector(kind: DataType) -> bool:
    """Whether a column holds Spark ML's vectors."""
    from pyspark.ml.linalg import VectorUDT

    return isinstance(kind, VectorUDT)


def is_array(kind: DataType) -> bool:
    """Whether a column holds arrays of numbers, or vectors."""
    numbers = isinstance(kind, ArrayType) and isinstance(
        kind.elementType, NumericType | BooleanType
    )
    return numbers or is_vector(kind)


def numbers_of(name: str, kind: DataType, number: Literal["double", "float"] = "double") -> Column:
    """A column of arrays or vectors, dense or sparse, as an array of doubles or floats."""
    from pyspark.ml.functions import vector_to_array

    if is_vector(kind):
        # The conversion raises on a null vector, which is to become a fault of its row alone.
        values = vector_to_array(column(name), "float64" if number == "double" else "float32")
        return F.when(column(name).isNotNull(), values)
    return column(name).cast(f"array<{number}>")


def time_of(name: str, kind: DataType) -> Column:
    """A column of times, dates or numbers as a double that orders them; null where it is neither.

    Times and dates become microseconds since 1970, UTC unless they say otherwise. A text without a
    date is a finite number or nothing: a time of day alone would be another one each day.
    """
    given = column(name)
    if isinstance(kind, NumericType):
        return given.cast("double")
    moment = F.unix_micros(given.try_cast("timestamp")).cast("double")
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return moment
    number = given.try_cast("double")
    return F.when(given.rlike(r"^\s*\d{4}-\d"), moment).when(F.abs(number) < float("inf"), number)
