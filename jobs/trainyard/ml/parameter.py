"""What a Spark ML estimator's parameter is, told without Spark: `trainyard.migrate` has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Converter = Callable[[Any], Any]
"""Makes a given value one of its type, or raises TypeError."""


def unchanged(value: Any) -> Any:
    """The converter of what may be of any type."""
    return value


def _sparks(name: str) -> Converter:
    """One of Spark ML's converters, which is imported when there is a value to convert."""

    def convert(value: Any) -> Any:
        from pyspark.ml.param import TypeConverters

        return getattr(TypeConverters, name)(value)

    return convert


FLAG = _sparks("toBoolean")
NUMBER = _sparks("toFloat")
NUMBERS = _sparks("toListFloat")
TEXT = _sparks("toString")
TEXTS = _sparks("toListString")
_whole = _sparks("toInt")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One parameter.

    Attributes:
        name: of the Param and the constructor's argument.
        doc: what it says, for `explainParams`.
        default: its value where none is given.
        convert: makes a given value one of its type, or raises TypeError; None stays None.
        accessor: what follows `get` and `set`; by default the name in camel case.
        refused: why another value than the default is refused, and what to do.
        is_saved: whether it is written with the estimator.
    """

    name: str
    doc: str
    default: Any = None
    convert: Converter = unchanged
    accessor: str = ""
    refused: tuple[str, str] | None = None
    is_saved: bool = True

    @property
    def method(self) -> str:
        """What follows `get` and `set` in its methods' names."""
        if self.accessor:
            return self.accessor
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("_"))


def whole(least: int = 1) -> Converter:
    """A converter for whole numbers of at least so much."""

    def convert(value: Any) -> int:
        number: int = _whole(value)
        if number < least:
            raise TypeError(f"it must be {least} or more, not {number}")
        return number

    return convert


def native(value: Any) -> Any:
    """A converter for numpy's numbers and arrays, and for tuples: as JSON has them."""
    if isinstance(value, list | tuple):
        return [native(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def listed(value: Any) -> list[Any]:
    """A converter for a list, or the one item of it."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
