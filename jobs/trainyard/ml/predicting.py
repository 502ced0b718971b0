"""Adds predictions to a DataFrame, batches at a time, with a model that is broadcast once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, DoubleType, StructField, StructType

from trainyard.columns import column, is_array, numbers_of
from trainyard.errors import SettingError
from trainyard.ml.scorer import Input, Predict, Shipped, scorer
from trainyard.ml.staging import check_number, type_of
from trainyard.session import ship

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, kw_only=True)
class Output:
    """A column that a model gives.

    Attributes:
        name: its name.
        width: numbers of a row's vector; None is a double.
    """

    name: str
    width: int | None


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
        outputs: what it gives; one without a name is left out, as Spark ML does.
        model: what is broadcast.
        load: makes the model of it, once in each process.
        predict: applies the model.

    Raises:
        JobError: an input is not there, or holds no numbers.
        SettingError: an output is.
    """
    _check_names(dataset, [output.name for output in outputs])
    context = dataset.sparkSession.sparkContext
    ship(context)
    shipped = Shipped(context.broadcast(model), load)
    make: Any = arrow_udf  # its types know no struct
    udf = make(scorer(shipped, inputs, predict), _schema(outputs))
    temporary = f"_trainyard_{uuid.uuid4().hex}"
    given = F.struct(*[_column(dataset, one.name) for one in inputs])
    scored = dataset.withColumn(temporary, udf(given))
    found = {o: F.col(f"{temporary}.o{n}") for n, o in enumerate(outputs) if o.name}
    columns = {o.name: c if o.width is None else array_to_vector(c) for o, c in found.items()}
    return scored.withColumns(columns).drop(temporary)


def _check_names(dataset: DataFrame, names: Sequence[str]) -> None:
    """Raise `SettingError` for a name that Spark takes for another column's."""
    exact = str(dataset.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"
    there = {name if exact else name.lower() for name in dataset.columns}
    for name in filter(None, names):
        folded = name if exact else name.lower()
        if folded in there:
            raise SettingError(
                "output column", name, "there is one of this name already", "Name another."
            )
        there.add(folded)


def _column(dataset: DataFrame, name: str) -> Column:
    kind = type_of(dataset, name)
    if is_array(kind):
        return numbers_of(name, kind, "float")
    check_number(name, kind, "Use numbers or booleans, or arrays or vectors of them.")
    return F.array(column(name).cast("float"))


def _schema(outputs: Sequence[Output]) -> StructType:
    """What the workers give: a type of vectors there would make them import all of Spark ML."""
    number = DoubleType()
    kinds = [number if output.width is None else ArrayType(number) for output in outputs]
    return StructType([StructField(f"o{number}", kind) for number, kind in enumerate(kinds)])
