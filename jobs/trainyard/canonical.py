"""Any table's rows in one form, made in Spark's JVM: the columns that `rows.classify` reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from trainyard.columns import column, is_array, numbers_of, time_of
from trainyard.dataset import (
    CATEGORIES,
    CLASSIFICATION,
    KEEP,
    KEY,
    LABEL,
    MARGIN,
    VALUES,
    WEIGHT,
)
from trainyard.errors import JobError
from trainyard.rows import BY, CONTENT, FAULT, Layout
from trainyard.sources import Table
from trainyard.specs import SPLITS

if TYPE_CHECKING:
    from pyspark.sql import Column

LabelKind = Literal["number", "string", "untyped"]
"""What a label column holds; a file of text does not say."""

ORIGINAL = "_trainyard_original"
"""Column with all of a row's values as JSON, where `with_original` added it."""

_LARGEST = 3.4028234663852886e38
"""What a 32-bit float holds."""


def canonical(table: Table, layout: Layout, faults: Sequence[Column] = ()) -> DataFrame:
    """A table's rows as `values`, `categories`, `label`, `key`, `weight`, `margin`, `keep`, `by`,
    `fault`, `content`.

    `values` and `margin` are array<double>, `weight` and a regression's label are doubles, `by` is
    a double for a split by time; all else is text. `content` is a 64-bit hash of all before it, and
    `fault` says what is wrong with a row as far as the JVM can tell.

    Args:
        faults: columns that say what else is wrong with a row, or are null.

    Raises:
        JobError: a column's type cannot be used.
    """
    types = {name: table.frame.schema[name].dataType for name in layout.columns}
    readers = _Readers(table, layout, types)
    columns = {
        VALUES: readers.values(),
        CATEGORIES: readers.categories(),
        LABEL: readers.label(),
        KEY: readers.key(),
        WEIGHT: readers.weight(),
        MARGIN: readers.margin(),
        KEEP: _texts([column(name) for name in layout.keep]),
        BY: readers.by(),
    }
    found = [*readers.malformed(), *faults, *readers.faults]
    frame = table.frame.select(
        *(made.alias(name) for name, made in columns.items()),
        F.coalesce(*found, _no_text()).alias(FAULT),
        *([F.col(ORIGINAL)] if ORIGINAL in table.frame.columns else []),
    )
    return frame.withColumn(CONTENT, F.xxhash64(*columns))


def with_original(table: Table) -> Table:
    """The table with `ORIGINAL`, which `canonical` carries along."""
    whole = F.struct(
        *(
            _readable(field.name, field.dataType).alias(field.name)
            for field in table.frame.schema
            if field.name != table.malformed
        )
    )
    text = F.to_json(whole, {"ignoreNullFields": "false"})
    if table.malformed:
        text = F.coalesce(column(table.malformed), text)
    return dataclasses.replace(table, frame=table.frame.withColumn(ORIGINAL, text))


def _readable(name: str, kind: DataType) -> Column:
    return numbers_of(name, kind) if is_array(kind) else column(name)


class _Readers:
    """The columns of a row, and what can be wrong with each; `faults` grows as they are made."""

    def __init__(self, table: Table, layout: Layout, types: dict[str, DataType]) -> None:
        self._table = table
        self._layout = layout
        self._types = types
        self.faults: list[Column] = []

    def malformed(self) -> list[Column]:
        malformed = self._table.malformed
        return [_when(column(malformed).isNotNull(), "the line is malformed")] if malformed else []

    def values(self) -> Column:
        numbers = self._layout.numbers
        if len(numbers) == 1 and is_array(self._types[numbers[0]]):
            return numbers_of(numbers[0], self._types[numbers[0]])
        made = [self._number(name, "feature") for name in numbers]
        return F.array(*made) if made else F.array().cast("array<double>")

    def categories(self) -> Column:
        for name in self._layout.categories:
            if not isinstance(self._types[name], StringType | IntegralType | BooleanType):
                fix = "Use texts, whole numbers or booleans, or take it out of 'categorical'."
                raise _column_type("categorical", name, self._types[name], fix)
        # An empty text is no category: a CSV file cannot even tell it from a missing one.
        return _texts(
            [F.nullif(column(name).cast("string"), F.lit("")) for name in self._layout.categories]
        )

    def label(self) -> Column:
        name, layout = self._layout.label, self._layout
        if name is None:
            return _no_text()
        self.faults.append(_when(column(name).isNull(), f"label {name!r} is null"))
        if layout.task != CLASSIFICATION:
            value = self._number(name, "label")
            self._refuse_infinite(value, f"label {name!r}")
            return value
        return self._class_text(name)

    def _class_text(self, name: str) -> Column:
        kind = self._types[name]
        if isinstance(kind, BooleanType):
            return column(name).cast("int").cast("string")
        if isinstance(kind, DecimalType | DoubleType | FloatType):
            # 3.0 is class 3; what has a fraction stays as it is and is refused later.
            number = column(name).cast("double")
            self.faults.append(_when(F.isnan(number), f"label {name!r} is not a number (NaN)"))
            whole = F.when(number % 1 == 0, number.try_cast("bigint").cast("string"))
            return F.coalesce(whole, number.cast("string"))
        if isinstance(kind, IntegralType | StringType):
            return column(name).cast("string")
        raise _column_type("label", name, kind, "Use a column of whole numbers, texts or booleans.")

    def key(self) -> Column:
        name = self._layout.key
        if name is None:
            return _no_text()
        if not isinstance(
            self._types[name],
            NumericType | StringType | DateType | TimestampType | TimestampNTZType,
        ):
            fix = "Use a column of whole numbers or texts."
            raise _column_type("key", name, self._types[name], fix)
        self.faults.append(_when(column(name).isNull(), f"key {name!r} is null"))
        return column(name).cast("string")

    def weight(self) -> Column:
        name = self._layout.weight
        if name is None:
            return F.lit(None).cast("double")
        value = self._number(name, "weight")
        self.faults.append(_when(column(name).isNull(), f"weight {name!r} is null"))
        self._refuse_infinite(value, f"weight {name!r}")
        self.faults.append(_when(value < 0, f"weight {name!r} is negative"))
        return value

    def margin(self) -> Column:
        name = self._layout.base_margin
        if name is None:
            return F.lit(None).cast("array<double>")
        if is_array(self._types[name]):
            value = numbers_of(name, self._types[name])
        else:
            value = F.array(self._number(name, "base margin"))
        finite = F.forall(value, lambda x: x.isNotNull() & ~F.isnan(x) & (F.abs(x) <= _LARGEST))
        self.faults.append(_when(column(name).isNull(), f"base margin {name!r} is null"))
        self.faults.append(_when(~finite, f"base margin {name!r} is not finite in 32 bits"))
        return value

    def by(self) -> Column:
        name = self._layout.split_column
        if name is None:
            return _no_text()
        if self._layout.split_by == "column":
            given = column(name).cast("string")
            if isinstance(self._types[name], BooleanType):
                given = F.when(column(name), SPLITS[1]).otherwise(SPLITS[0])
                self.faults.append(_when(column(name).isNull(), f"split column {name!r} is null"))
                return given
            named = F.coalesce(given.isin(*SPLITS), F.lit(False))
            fault = f"split column {name!r} is none of {', '.join(SPLITS)}"
            self.faults.append(_when(~named, fault))
            return given
        time = time_of(name, self._types[name])
        usable = time.isNotNull() & ~F.isnan(time)
        self.faults.append(_when(~usable, f"split column {name!r} is no time"))
        return time

    def _number(self, name: str, role: str) -> Column:
        kind = self._types[name]
        if self._table.textual:
            value = column(name).try_cast("double")
            self.faults.append(
                _when(column(name).isNotNull() & value.isNull(), f"{role} {name!r} is no number")
            )
            return value
        if isinstance(kind, BooleanType):
            return column(name).cast("int").cast("double")
        if isinstance(kind, NumericType):
            return column(name).cast("double")
        number = "Make it a number"
        if isinstance(kind, StringType):
            number += f" (in 'query' by double({name}))"
        fix = f"{number}, or leave the column out."
        if role == "feature":
            fix = f"{number}, name it in 'categorical', or leave the column out."
            if is_array(kind):
                fix = (
                    "A column of arrays or vectors must be the only feature; assemble the others "
                    "into it."
                )
        raise _column_type(role, name, kind, fix)

    def _refuse_infinite(self, value: Column, what: str) -> None:
        self.faults.append(_when(F.isnan(value), f"{what} is not a number (NaN)"))
        size = F.abs(value)
        self.faults.append(_when(size == float("inf"), f"{what} is infinite"))
        is_large = (size > _LARGEST) & (size < float("inf"))
        self.faults.append(_when(is_large, f"{what} is too large for a 32-bit float"))


def label_kind(table: Table, label: str) -> LabelKind:
    """What a table's label column holds."""
    if table.textual:
        return "untyped"
    return "string" if isinstance(table.frame.schema[label].dataType, StringType) else "number"


def common_width(rows: DataFrame, table: Table, numbers: Sequence[str]) -> int:
    """How many numbers most rows have, 1 at least; reads the table for a column of arrays."""
    if len(numbers) != 1 or not is_array(table.frame.schema[numbers[0]].dataType):
        return len(numbers)
    counts = rows.groupBy(F.size(VALUES).alias("width")).count().filter("width >= 0")
    top = counts.orderBy(F.desc("count"), F.desc("width")).head()
    return max(1, int(top["width"])) if top else 1


def _texts(columns: Sequence[Column]) -> Column:
    texts = [made.cast("string") for made in columns]
    return F.array(*texts) if texts else F.array().cast("array<string>")


def _no_text() -> Column:
    return F.lit(None).cast("string")


def _when(condition: Column, fault: str) -> Column:
    return F.when(condition, F.lit(fault))


def _column_type(role: str, name: str, kind: DataType, fix: str) -> JobError:
    return JobError(f"{role} column {name!r} has the type {kind.simpleString()}.", fix)
