"""What a worker's process does to score batches; it imports nothing of Spark, which takes time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trainyard.errors import JobError

if TYPE_CHECKING:
    from pyspark import Broadcast

Floats = npt.NDArray[np.float32]

BATCH_ROWS = 512
"""Rows that a model takes at a time: what a layer makes of them stays in the CPU's cache."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """A column that a model takes.

    Attributes:
        name: its name.
        width: numbers that a row has.
    """

    name: str
    width: int


Predict = Callable[[Any, list[Floats]], Sequence[npt.NDArray[Any]]]
"""A model and its inputs, each float32 [rows, width]; gives each output, [rows, ...]."""


class Shipped:
    """A model on its way to the workers."""

    def __init__(self, data: Broadcast[bytes], load: Callable[[bytes], Any]) -> None:
        self._data = data
        self._load = load
        self._id = uuid.uuid4().hex

    def model(self) -> Any:
        """The model of this worker's process; call it in a task."""
        if self._id not in _MODELS:
            _MODELS.clear()  # a process scores with one at a time
            _MODELS[self._id] = self._load(self._data.value)
        return _MODELS[self._id]


_MODELS: dict[str, Any] = {}


def scorer(shipped: Shipped, inputs: Sequence[Input], predict: Predict) -> Any:
    """The function of `arrow_udf`: batches of a struct of inputs to batches of one of outputs."""

    def scores(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for batch in batches:
            columns = zip(batch.flatten(), inputs, strict=True)
            whole = [_matrix(array, one) for array, one in columns]
            found: list[Sequence[npt.NDArray[Any]]] = []
            for start in range(0, max(1, len(batch)), BATCH_ROWS):
                rows = [each[start : start + BATCH_ROWS] for each in whole]
                found.append(predict(shipped.model(), rows))
            yield _struct([np.concatenate(parts) for parts in zip(*found, strict=True)])

    # Spark reads the hints to know that it gives iterators.
    scores.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return scores


def _matrix(array: pa.Array, one: Input) -> Floats:
    values = array.flatten()
    if nulls := array.null_count or values.null_count:
        raise JobError(
            f"{nulls} rows have a null in column {one.name!r}.",
            "Leave them out, as with DataFrame.na.drop, or fill the values in.",
        )
    if len(values) != len(array) * one.width:
        raise JobError(
            f"rows of column {one.name!r} do not have the model's {one.width} numbers.",
            "Give the columns that the model was trained with.",
        )
    made: Floats = values.to_numpy(zero_copy_only=False).astype(np.float32)
    return made.reshape(-1, one.width)


def _struct(outputs: Sequence[npt.NDArray[Any]]) -> pa.StructArray:
    columns = [_arrays(output) if output.ndim > 1 else _doubles(output) for output in outputs]
    return pa.StructArray.from_arrays(columns, [f"o{number}" for number in range(len(columns))])


def _doubles(output: npt.NDArray[Any]) -> pa.Array:
    return pa.array(np.ascontiguousarray(output, dtype=np.float64).reshape(-1))


def _arrays(output: npt.NDArray[Any]) -> pa.ListArray:
    rows, width = output.shape
    return pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * width, _doubles(output))
