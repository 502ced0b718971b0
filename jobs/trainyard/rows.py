"""What a row is, in Spark's Python workers: numbers, categories, a key, and why a row is bad.

`classify` turns a batch of `canonical` rows into a matrix, with a reason for each row that cannot
be used. Preparing and predicting share both, so that training and serving cannot differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.dataset import CATEGORIES, CLASSIFICATION, KEY, MARGIN, VALUES

BY = "by"
FAULT = "fault"
CONTENT = "content"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which of a table's columns make a row.

    Attributes:
        numbers: feature columns of numbers, in order, or the one of arrays or vectors.
        categories: feature columns of categories, in order.
        width: numbers in a row, categories apart.
        missing: whether a number may be missing, since it will be imputed.
        label: label column, if rows have one.
        task: what the label is: `classification` or `regression`.
        key: key column; without it a row is known by a digest of its features.
        weight: weight column, if rows have one.
        base_margin: column of base margins, if rows have one.
        keep: columns to carry along.
        split_by: what decides on a row's split: `hash`, `time` or `column`.
        split_column: the column of times or names for it.
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...] = ()
    width: int
    missing: bool = False
    label: str | None = None
    task: str = CLASSIFICATION
    key: str | None = None
    weight: str | None = None
    base_margin: str | None = None
    keep: tuple[str, ...] = ()
    split_by: str = "hash"
    split_column: str | None = None

    @property
    def columns(self) -> list[str]:
        """Every column, once."""
        single = (self.label, self.key, self.weight, self.base_margin, self.split_column)
        named = [*self.numbers, *self.categories, *filter(None, single), *self.keep]
        return list(dict.fromkeys(named))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of rows in which each is usable or has a reason why not.

    Attributes:
        values: float64 or float32 [rows, width]; a bad row's numbers mean nothing, and NaN is a
            missing number.
        keys: key texts.
        faults: reason of each bad row, by its position.
        margins: base margins, lists of float64, if rows have them; null for a bad row.
        unseen: how many of the usable rows have a category that no training row had.
    """

    values: np.ndarray[Any, Any]
    keys: pa.Array
    faults: dict[int, str]
    margins: pa.Array | None = None
    unseen: int = 0

    @property
    def good(self) -> np.ndarray[Any, Any]:
        """Positions of the usable rows."""
        usable = np.ones(len(self.values), np.bool_)
        usable[list(self.faults)] = False
        return np.flatnonzero(usable)


def classify(batch: pa.RecordBatch, layout: Layout) -> Batch:
    """Turn a batch of `canonical` rows into numbers, and say of each bad row why it is bad."""
    values, faults = _assemble(batch.column(VALUES), layout)
    keys = batch.column(KEY)
    if layout.key is None:
        texts = batch.column(CATEGORIES).to_pylist() if layout.categories else [()] * len(values)
        keys = pa.array(
            [content_key(row, text) for row, text in zip(values, texts, strict=True)], pa.string()
        )
    told = batch.column(FAULT)
    faults |= {row: told[row].as_py() for row in _positions(told.is_valid())}
    margins = batch.column(MARGIN) if layout.base_margin else None
    return Batch(values=values, keys=keys, faults=faults, margins=margins)


def content_key(values: np.ndarray[Any, Any], categories: Sequence[str | None] = ()) -> str:
    """The key of a row that has none: a digest of its numbers, as float32, and its categories."""
    digest = hashlib.blake2b(values.astype(np.float32).tobytes(), digest_size=16)
    if categories:
        digest.update(repr(categories).encode())
    return digest.hexdigest()


def _assemble(given: pa.Array, layout: Layout) -> tuple[np.ndarray[Any, Any], dict[int, str]]:
    lengths = pc.list_value_length(given)
    fits = pc.fill_null(pc.equal(lengths, layout.width), False)
    values = np.zeros((len(given), layout.width), np.float64)
    fitting = given.filter(fits).flatten().to_numpy(zero_copy_only=False)
    values[fits.to_numpy(zero_copy_only=False)] = fitting.reshape(
        pc.sum(fits).as_py() or 0, layout.width
    )
    faults = {
        row: _length_fault(layout, lengths[row].as_py()) for row in _positions(pc.invert(fits))
    }
    with np.errstate(over="ignore"):
        usable = np.isfinite(values.astype(np.float32))
    if layout.missing:
        usable |= np.isnan(values)
    for row in np.flatnonzero(~usable.all(axis=1)).tolist():
        position = int(np.argmin(usable[row]))
        faults[row] = _value_fault(layout, position, given[row].values[position].as_py())
    return values, faults


def _length_fault(layout: Layout, length: int | None) -> str:
    name = layout.numbers[0]
    if length is None:
        return f"feature {name!r} is null"
    return f"feature {name!r} has {length} numbers instead of {layout.width}"


def _value_fault(layout: Layout, position: int, value: float | None) -> str:
    name = layout.numbers[position if len(layout.numbers) > 1 else 0]
    if value is None:
        return (
            f"feature {name!r} is null"
            if layout.width == len(layout.numbers)
            else f"feature {name!r} holds a null"
        )
    if value != value:
        return f"feature {name!r} is not a number (NaN)"
    if value in (float("inf"), float("-inf")):
        return f"feature {name!r} is infinite"
    return f"feature {name!r} is too large for a 32-bit float"


def _positions(mask: pa.Array) -> list[int]:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
