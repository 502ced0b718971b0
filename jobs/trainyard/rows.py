"""What a row is: features, label and key in one form, and the one place that says why a row is bad.

`canonical` runs in Spark's JVM and gives any table the same columns; `classify` runs in its Python
workers and turns a batch of those columns into a matrix, with a reason for each row that cannot be
used. Preparing and predicting share both, so that training and serving cannot differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    NumericType,
    StringType,
    TimestampType,
)

from trainyard.errors import JobError
from trainyard.sources import Table, column

if TYPE_CHECKING:
    from pyspark.sql import Column

VALUES = "values"
LABEL = "label"
KEY = "key"
CONTENT = "content"
MALFORMED = "malformed"


LabelKind = Literal["number", "string", "untyped"]
"""What a label column holds; a file of text does not say."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which of a table's columns make a row.

    Attributes:
        features: feature columns, in order.
        width: numbers in a row's features.
        label: label column, if rows have one.
        key: key column; without it a row is known by a digest of its features.
    """

    features: tuple[str, ...]
    width: int
    label: str | None
    key: str | None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of rows in which each is usable or has a reason why not.

    Attributes:
        features: float32 [rows, width]; a bad row's numbers mean nothing.
        labels: label texts; null in tables without labels.
        keys: key texts.
        faults: reason of each bad row, by its position.
    """

    features: np.ndarray[Any, Any]
    labels: pa.Array
    keys: pa.Array
    faults: dict[int, str]

    @property
    def good(self) -> np.ndarray[Any, Any]:
        """Positions of the usable rows."""
        return np.setdiff1d(np.arange(len(self.features)), np.fromiter(self.faults, np.int64))


def canonical(
    table: Table, features: Sequence[str], label: str | None, key: str | None
) -> DataFrame:
    """A table's rows as `values` (array<double>), `label`, `key`, `malformed` and `content`.

    `content` is a 64-bit hash of a row's features, label and key; the three before it are texts.

    Raises:
        JobError: a column's type cannot be used.
    """
    frame = table.frame.select(
        _values(table, features).alias(VALUES),
        (_label_text(table, label) if label else F.lit(None).cast("string")).alias(LABEL),
        (_key_text(table, key) if key else F.lit(None).cast("string")).alias(KEY),
        (column(table.malformed) if table.malformed else F.lit(None).cast("string")).alias(
            MALFORMED
        ),
    )
    return frame.withColumn(CONTENT, F.xxhash64(VALUES, LABEL, KEY))


def label_kind(table: Table, label: str) -> LabelKind:
    """What a table's label column holds."""
    if table.textual:
        return "untyped"
    return "string" if isinstance(table.frame.schema[label].dataType, StringType) else "number"


def common_width(rows: DataFrame, features: Sequence[str]) -> int:
    """How many numbers most rows have, 1 at least; reads the table for a column of arrays."""
    if len(features) > 1:
        return len(features)
    counts = rows.groupBy(F.size(VALUES).alias("width")).count().filter("width >= 0")
    top = counts.orderBy(F.desc("count"), F.desc("width")).head()
    return max(1, int(top["width"])) if top else 1


def classify(batch: pa.RecordBatch, layout: Layout) -> Batch:
    """Turn a batch of `canonical` rows into numbers, and say of each bad row why it is bad."""
    features, faults = _assemble(batch.column(VALUES), layout)
    keys = batch.column(KEY)
    if layout.key is None:
        keys = pa.array([content_key(row) for row in features], pa.string())
    else:
        faults |= dict.fromkeys(_positions(keys.is_null()), f"key {layout.key!r} is null")
    if layout.label is not None:
        faults |= dict.fromkeys(
            _positions(batch.column(LABEL).is_null()), f"label {layout.label!r} is null"
        )
    broken = _positions(batch.column(MALFORMED).is_valid())
    faults |= dict.fromkeys(broken, "the line is malformed")
    return Batch(features=features, labels=batch.column(LABEL), keys=keys, faults=faults)


def content_key(features: np.ndarray[Any, Any]) -> str:
    """The key of a row that has none: a digest of its float32 features."""
    return hashlib.blake2b(features.tobytes(), digest_size=16).hexdigest()


def _assemble(values: pa.Array, layout: Layout) -> tuple[np.ndarray[Any, Any], dict[int, str]]:
    lengths = pc.list_value_length(values)
    fits = pc.fill_null(pc.equal(lengths, layout.width), False)
    features = np.zeros((len(values), layout.width), np.float32)
    fitting = values.filter(fits).flatten().to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        features[fits.to_numpy(zero_copy_only=False)] = fitting.reshape(-1, layout.width)
    faults = {
        row: _length_fault(layout, lengths[row].as_py()) for row in _positions(pc.invert(fits))
    }
    finite = np.isfinite(features)
    for row in np.flatnonzero(~finite.all(axis=1)).tolist():
        position = int(np.argmin(finite[row]))
        faults[row] = _value_fault(layout, position, values[row].values[position].as_py())
    return features, faults


def _length_fault(layout: Layout, length: int | None) -> str:
    name = layout.features[0]
    if length is None:
        return f"feature {name!r} is null"
    return f"feature {name!r} has {length} numbers instead of {layout.width}"


def _value_fault(layout: Layout, position: int, value: float | None) -> str:
    name = layout.features[position if len(layout.features) > 1 else 0]
    if value is None:
        return (
            f"feature {name!r} is null"
            if layout.width == len(layout.features)
            else f"feature {name!r} holds a null"
        )
    if value != value:
        return f"feature {name!r} is not a number (NaN)"
    if value in (float("inf"), float("-inf")):
        return f"feature {name!r} is infinite"
    return f"feature {name!r} is too large for a 32-bit float"


def _positions(mask: pa.Array) -> list[int]:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()


def _values(table: Table, features: Sequence[str]) -> Column:
    types = {name: table.frame.schema[name].dataType for name in features}
    kind = types[features[0]] if len(features) == 1 else None
    if isinstance(kind, ArrayType):
        return _array(features[0], kind)
    if _is_vector(kind):
        return _vector(features[0])
    return F.array(*(_number(table, name, types[name]) for name in features))


def _array(name: str, kind: ArrayType) -> Column:
    if not isinstance(kind.elementType, NumericType | BooleanType):
        raise _feature_type(name, kind, "Use arrays of numbers.")
    return column(name).cast("array<double>")


def _vector(name: str) -> Column:
    from pyspark.ml.functions import vector_to_array

    # The conversion raises on a null vector, which is to become a fault of its row alone.
    return F.when(column(name).isNotNull(), vector_to_array(column(name)))


def _is_vector(kind: DataType | None) -> bool:
    from pyspark.ml.linalg import VectorUDT

    return isinstance(kind, VectorUDT)


def _number(table: Table, name: str, kind: DataType) -> Column:
    if table.textual:
        # Text that is no number becomes NaN, so that it is told from a value that is missing.
        number = F.coalesce(column(name).try_cast("double"), F.lit(float("nan")))
        return F.when(column(name).isNotNull(), number)
    if isinstance(kind, BooleanType):
        return column(name).cast("int").cast("double")
    if isinstance(kind, NumericType):
        return column(name).cast("double")
    fix = "Make it a number, or leave the column out."
    if isinstance(kind, ArrayType) or _is_vector(kind):
        fix = "A column of arrays or vectors must be the only feature; assemble the others into it."
    raise _feature_type(name, kind, fix)


def _feature_type(name: str, kind: DataType, fix: str) -> JobError:
    return JobError(f"feature column {name!r} has the type {kind.simpleString()}.", fix)


def _label_text(table: Table, name: str) -> Column:
    kind = table.frame.schema[name].dataType
    if isinstance(kind, BooleanType):
        return column(name).cast("int").cast("string")
    if isinstance(kind, DecimalType | DoubleType | FloatType):
        # 3.0 is class 3; what has a fraction stays as it is and is refused later.
        number = column(name).cast("double")
        whole = F.when(number % 1 == 0, number.try_cast("bigint").cast("string"))
        return F.when(~F.isnan(number), F.coalesce(whole, number.cast("string")))
    if isinstance(kind, IntegralType | StringType):
        return column(name).cast("string")
    raise JobError(
        f"label column {name!r} has the type {kind.simpleString()}.",
        "Use a column of whole numbers, texts or booleans.",
    )


def _key_text(table: Table, name: str) -> Column:
    kind = table.frame.schema[name].dataType
    if not isinstance(kind, NumericType | StringType | DateType | TimestampType):
        raise JobError(
            f"key column {name!r} has the type {kind.simpleString()}.",
            "Use a column of whole numbers or texts.",
        )
    return column(name).cast("string")
