"""Adds predictions to a DataFrame, batches at a time, with a model that is broadcast once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.functions import arrow_udf

from trainyard.columns import column, is_array, numbers_of
from trainyard.errors import JobError, SettingError
from trainyard.ml.staging import type_of
from trainyard.session import ship

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import Column, DataFrame

Floats = npt.NDArray[np.float32]

BATCH_ROWS = 1024
"""Rows that a model takes at a time."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """A column that a model takes.

    Attributes:
        name: its name.
        width: numbers that a row has.
    """

    name: str
    width: int


@dataclass(frozen=True, kw_only=True)
class Output:
    """A column that a model gives.

    Attributes:
        name: its name.
        width: numbers of a row's vector; None is a double.
    """

    name: str
    width: int | None


Predict = Callable[[Any, list[Floats]], Sequence[npt.NDArray[Any]]]
"""A model and its inputs, each float32 [rows, width]; gives each output, [rows, ...]."""


def add_predictions(
    dataset: DataFrame,
    inputs: Sequence[Input],
    outputs: Sequence[Output],
    *,
    model: bytes,
    load: Callable[[bytes], Any],
    predict: Predict,
) -> DataFrame:
    """A frame with a model's outputs as further columns; computed when its rows are.

    Args:
        dataset: the frame.
        inputs: columns that the model takes: numbers, arrays or vectors.
        outputs: what it gives.
        model: what is broadcast.
        load: makes the model of it, once in each process.
        predict: applies the model.

    Raises:
        JobError: an input is not there.
        SettingError: an output is.
    """
    for output in outputs:
        if output.name in dataset.columns:
            raise SettingError(
                "output column", output.name, "the DataFrame has one of this name", "Name another."
            )
    context = dataset.sparkSession.sparkContext
    ship(context)
    shipped = _Shipped(context.broadcast(model), load)
    make: Any = arrow_udf  # its types know no struct
    udf = make(_udf(shipped, inputs, predict), _schema(outputs))
    temporary = f"_trainyard_{uuid.uuid4().hex}"
    given = F.struct(*[_column(dataset, one.name) for one in inputs])
    scored = dataset.withColumn(temporary, udf(given))
    columns = {}
    for number, output in enumerate(outputs):
        found = F.col(f"{temporary}.o{number}")
        columns[output.name] = found if output.width is None else array_to_vector(found)
    return scored.withColumns(columns).drop(temporary)


def _column(dataset: DataFrame, name: str) -> Column:
    kind = type_of(dataset, name)
    if is_array(kind):
        return numbers_of(name, kind).cast("array<float>")
    return F.array(column(name).cast("float"))


def _schema(outputs: Sequence[Output]) -> str:
    kinds = ["double" if output.width is None else "array<double>" for output in outputs]
    return f"struct<{', '.join(f'o{number}: {kind}' for number, kind in enumerate(kinds))}>"


class _Shipped:
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


def _udf(shipped: _Shipped, inputs: Sequence[Input], predict: Predict) -> Any:
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
    columns = []
    for output in outputs:
        flat = pa.array(np.ascontiguousarray(output, dtype=np.float64).reshape(-1))
        if output.ndim == 1:
            columns.append(flat)
        else:
            offsets = np.arange(len(output) + 1, dtype=np.int32) * output.shape[1]
            columns.append(pa.ListArray.from_arrays(offsets, flat))
    return pa.StructArray.from_arrays(columns, [f"o{number}" for number in range(len(columns))])
