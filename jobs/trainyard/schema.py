"""What a table's columns must be: a JSON schema, read strictly, and the fault of each row in it.

    {"columns": {
        "pixels": {"type": "array", "width": 784, "minimum": 0, "maximum": 255},
        "digit": {"type": "integer", "values": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]},
        "taken": {"type": "timestamp", "nullable": true}}}

A column has a `type`, and may be `nullable` (it is not unless it says so), have a `minimum`, a
`maximum`, the only `values` allowed, and the `width` of an array. Columns that a schema does not
name are not checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from trainyard import store
from trainyard.columns import column, is_vector, numbers_of, time_of
from trainyard.errors import JobError, SettingError, nearest

if TYPE_CHECKING:
    from pyspark.sql import Column

    from trainyard.sources import Table

TYPES = ("integer", "number", "boolean", "text", "timestamp", "array")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What one column must be.

    Attributes:
        minimum: least value allowed, of an array's numbers too.
        maximum: greatest value allowed, likewise.
        values: the only values allowed; any without it.
        width: how many numbers an array has.
    """

    type: str
    nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None
    values: tuple[Any, ...] | None = None
    width: int | None = None


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The rules of a table's columns, by name."""

    columns: dict[str, Rule] = field(default_factory=dict)


def read_schema(named: str | None) -> Schema:
    """The schema that the setting names: none, a packaged one, a file's, or its own text.

    Raises:
        JobError: it cannot be read, or holds a name or value that a schema does not have.
    """
    if named is None:
        return Schema()
    try:
        described = json.loads(_text(named))
    except ValueError as error:
        raise _wrong(named, f"it is no JSON: {error}", "Correct the text.") from error
    body = _mapping(named, "it", described)
    _known(named, "a schema", body, ("name", "description", "columns"))
    rules = _mapping(named, "'columns'", body.get("columns"))
    return Schema(columns={name: _rule(named, name, rule) for name, rule in rules.items()})


def faults(schema: Schema, table: Table) -> list[Column]:
    """For each rule a column with what is wrong in a row, null where nothing is.

    Raises:
        JobError: a column's type is another than the schema's.
    """
    return [
        fault
        for name, rule in schema.columns.items()
        for fault in _faults(name, rule, table, table.frame.schema[name].dataType)
    ]


def _text(named: str) -> str:
    if named.lstrip().startswith("{"):
        return named
    if not named.endswith(".json"):
        packaged = resources.files("trainyard") / "schemas"
        names = [file.name.removesuffix(".json") for file in packaged.iterdir()]
        if named not in names:
            raise _wrong(
                named,
                "there is no such packaged schema",
                f"{nearest(named, names)} Or give a path that ends in .json.",
            )
        return (packaged / f"{named}.json").read_text()
    try:
        return store.read_bytes(named).decode()
    except FileNotFoundError as error:
        raise _wrong(named, "nothing is there", "Check the path.") from error


def _rule(named: str, name: str, described: Any) -> Rule:
    rule = _mapping(named, f"column {name!r}", described)
    _known(named, f"column {name!r}", rule, Rule.__annotations__)
    if rule.get("type") not in TYPES:
        kind = str(rule.get("type"))
        raise _wrong(named, f"column {name!r} has the type {kind!r}", nearest(kind, TYPES))
    allowed: dict[str, type | tuple[type, ...]] = {
        "nullable": bool,
        "minimum": (int, float),
        "maximum": (int, float),
        "values": list,
        "width": int,
    }
    for key, kinds in allowed.items():
        if key in rule and (not isinstance(rule[key], kinds) or _is_no_number(key, rule[key])):
            raise _wrong(
                named,
                f"column {name!r} has {rule[key]!r} as its {key!r}",
                f"Give a {'list' if kinds is list else 'boolean' if kinds is bool else 'number'}.",
            )
    values = tuple(rule["values"]) if "values" in rule else None
    return Rule(**{**rule, "values": values})


def _is_no_number(key: str, value: Any) -> bool:
    return isinstance(value, bool) and key != "nullable"


def _faults(name: str, rule: Rule, table: Table, kind: DataType) -> Iterator[Column]:
    value, fits = _value(name, rule, kind, textual=table.textual)
    if not fits:
        raise JobError(
            f"column {name!r} is {kind.simpleString()}, but the schema says {rule.type}.",
            "Correct the schema, or convert the column in the source.",
        )
    given = column(name)
    if not rule.nullable:
        yield _when(given.isNull(), f"column {name!r} is null")
    yield _when(given.isNotNull() & value.isNull(), f"column {name!r} is not of type {rule.type}")
    is_array = rule.type == "array"
    least = F.array_min(value) if is_array else value
    most = F.array_max(value) if is_array else value
    if rule.type in ("integer", "number", "array"):
        yield _when(F.isnan(most), f"column {name!r} is not a number (NaN)")
    if rule.type == "integer":
        yield _when(value % 1 != 0, f"column {name!r} is not of type integer")
    if rule.type == "array" and rule.width is not None:
        yield _when(F.size(value) != rule.width, f"column {name!r} has not {rule.width} numbers")
    if rule.type == "array" and not rule.nullable:
        yield _when(F.exists(value, lambda x: x.isNull()), f"column {name!r} holds a null")
    if rule.minimum is not None:
        yield _when(least < rule.minimum, f"column {name!r} is below {rule.minimum:g}")
    if rule.maximum is not None:
        yield _when(most > rule.maximum, f"column {name!r} is above {rule.maximum:g}")
    if rule.values is not None:
        yield _when(~value.isin(*rule.values), f"column {name!r} is none of the schema's values")


def _value(name: str, rule: Rule, kind: DataType, *, textual: bool) -> tuple[Column, bool]:
    """A column as the type of its rule, null where a text is no such value; whether it can be."""
    given = column(name)
    if rule.type == "array":
        return numbers_of(name, kind), isinstance(kind, ArrayType) or is_vector(kind)
    if rule.type in ("integer", "number"):
        return given.try_cast("double"), textual or isinstance(kind, NumericType)
    if rule.type == "boolean":
        return given.try_cast("boolean"), textual or isinstance(kind, BooleanType)
    if rule.type == "timestamp":
        times = isinstance(kind, DateType | TimestampType | TimestampNTZType)
        return time_of(name, kind), textual or times
    return given, textual or isinstance(kind, StringType)


def _when(condition: Column, fault: str) -> Column:
    return F.when(condition, F.lit(fault))


def _mapping(named: str, what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(named, f"{what} is no mapping", 'Write it as {"columns": {"a": {...}}}.')
    return value


def _known(named: str, what: str, given: Mapping[str, Any], known: Any) -> None:
    for name in given:
        if name not in known:
            raise _wrong(named, f"{what} has no {name!r}", nearest(name, known))


def _wrong(named: str, problem: str, fix: str) -> SettingError:
    return SettingError("schema", named, problem, fix)
