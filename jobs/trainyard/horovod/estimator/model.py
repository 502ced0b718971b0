"""What TorchEstimator makes: a transformer that adds predictions, batches at a time."""

from __future__ import annotations

import copy
import io
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.ml import Model
from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from trainyard.columns import column, is_array, numbers_of
from trainyard.errors import JobError, SettingError
from trainyard.horovod.estimator.params import ALLOW_PICKLE, MODEL, OBJECTS, shapes
from trainyard.ml import objects
from trainyard.ml.saving import Savable
from trainyard.ml.settings import Tuned, tuned
from trainyard.ml.staging import type_of
from trainyard.session import ship

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import Column, DataFrame

BATCH_ROWS = 1024
"""Rows that the model takes at a time."""


@tuned(*MODEL, ALLOW_PICKLE)
class TorchModel(Tuned, Savable, Model):
    """Adds a column of predictions for each output of a PyTorch model.

    An output of one number is a double, also where the label is an integer; one of several numbers
    is a vector. The columns are `<label>__output`, or what `setOutputCols` says.
    """

    def getOutputCols(self) -> list[str]:  # noqa: N802 - Spark ML's own name
        """The columns of predictions."""
        given = self.value("outputCols")
        return list(given or [f"{name}__output" for name in self.value("label_columns") or ()])

    def getOptimizer(self) -> Any:  # noqa: N802 - Spark ML's own name
        """The optimizer after the last epoch, of the model's parameters."""
        optimizer = self.value("optimizer")
        return optimizer.of(self.value("model")) if hasattr(optimizer, "of") else optimizer

    def setLabelColoumns(self, value: list[str]) -> Any:  # noqa: N802 - as Horovod spells it
        """As `setLabelColumns`."""
        return self.setLabelColumns(value)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        context = dataset.sparkSession.sparkContext
        ship(context)
        features = list(self.value("feature_columns") or ())
        input_shapes = shapes("input_shapes", self.value("input_shapes"), features)
        names = self.getOutputCols()
        if taken := [name for name in names if name in dataset.columns]:
            raise SettingError(
                "outputCols", names, f"the DataFrame has {', '.join(taken)}", "Name others."
            )
        model = copy.deepcopy(self.value("model")).cpu().eval()
        widths = _outputs(model, input_shapes)
        if len(widths) != len(names):
            problem = f"the model gives {len(widths)} outputs"
            raise SettingError("outputCols", names, problem, "Name one column for each.")
        shipped = Shipped(context.broadcast(_to_bytes(model)), input_shapes)
        predict = F.arrow_udf(_predictor(shipped), _ddl(widths))
        given = predict(*[_input(dataset, name) for name in features])
        temporary = f"_trainyard_{uuid.uuid4().hex}"
        scored = dataset.withColumn(temporary, given)
        for number, (name, width) in enumerate(zip(names, widths, strict=True)):
            output = F.col(f"{temporary}.o{number}")
            scored = scored.withColumn(name, output if width is None else array_to_vector(output))
        return scored.drop(temporary)

    def saved(self) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """What is written of it; a loss that only a pickle can hold is left out of a plain one."""
        values = {p.name: v for p, v in self._paramMap.items()}
        if not values.get("allow_pickle"):
            values = {n: v for n, v in values.items() if n not in ("loss", "loss_constructors")}
        return objects.split(type(self).__name__, values, OBJECTS)

    def restore(self, described: dict[str, Any], data: bytes, path: str) -> None:
        """Take back what `saved` gave."""
        self._set(**objects.joined(described, data, path))


def _input(dataset: DataFrame, name: str) -> Column:
    kind = type_of(dataset, name)
    if is_array(kind):
        return numbers_of(name, kind).cast("array<float>")
    return F.array(column(name).cast("float"))


def _outputs(model: Any, input_shapes: list[list[int]]) -> list[int | None]:
    """How many numbers each output has for a row; None for a single one."""
    import torch

    try:
        with torch.inference_mode():
            found = model(*[torch.zeros(2, *shape[1:]) for shape in input_shapes])
    except Exception as error:
        raise JobError(
            f"the model fails for rows of zeros: {type(error).__name__}: {error}.",
            f"Correct input_shapes, which are {input_shapes}.",
        ) from error
    outputs = list(found) if isinstance(found, list | tuple) else [found]
    sizes = [output.numel() // 2 for output in outputs]
    return [None if size == 1 else size for size in sizes]


def _ddl(widths: list[int | None]) -> str:
    kinds = ["double" if width is None else "array<double>" for width in widths]
    return f"struct<{', '.join(f'o{number}: {kind}' for number, kind in enumerate(kinds))}>"


def _to_bytes(model: Any) -> bytes:
    """The model as its own session's processes read it; it never leaves the session."""
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(model))  # type: ignore[no-untyped-call]


class Shipped:
    """A model on its way to the workers, where each process reads it once.

    Args:
        model: its bytes.
        input_shapes: of each input.
    """

    def __init__(self, model: Broadcast[bytes], input_shapes: list[list[int]]) -> None:
        self._model = model
        self._id = uuid.uuid4().hex
        self.input_shapes = input_shapes

    def model(self) -> Any:
        """The model of this worker; call it in a task."""
        import torch
        from pyspark import cloudpickle

        if self._id not in _MODELS:
            torch.set_num_threads(1)
            _MODELS[self._id] = cloudpickle.load(io.BytesIO(self._model.value))
        return _MODELS[self._id]


_MODELS: dict[str, Any] = {}


def _predictor(shipped: Shipped) -> Any:
    def predict(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        import torch

        model = shipped.model()
        for arrays in batches:
            whole = [_rows(array, shape) for array, shape in zip(arrays, shipped.input_shapes)]  # noqa: B905
            found: list[list[Any]] = []
            for start in range(0, len(arrays[0]), BATCH_ROWS):
                rows = [torch.from_numpy(each[start : start + BATCH_ROWS]) for each in whole]
                with torch.inference_mode():
                    outputs = model(*rows)
                given = outputs if isinstance(outputs, list | tuple) else [outputs]
                count = len(rows[0])
                found.append([x.reshape(count, -1).double().numpy() for x in given])
            yield _struct([np.concatenate(parts) for parts in zip(*found, strict=True)])

    # Spark reads the hints to know that it gives iterators.
    predict.__annotations__ = {
        "batches": Iterator[tuple[pa.Array, ...]],
        "return": Iterator[pa.Array],
    }
    return predict


def _rows(array: pa.Array, shape: list[int]) -> Any:
    values = array.flatten()
    if array.null_count or values.null_count:
        raise JobError(
            f"{array.null_count or values.null_count} rows have a null feature.",
            "Leave them out, as with DataFrame.na.drop, or fill the values in.",
        )
    width = int(np.prod(shape[1:], dtype=int))
    if len(values) != len(array) * width:
        raise JobError(
            f"rows of a feature do not have the {width} numbers of input_shapes' {shape}.",
            "Give the columns that the model was trained with.",
        )
    return values.to_numpy(zero_copy_only=False).astype(np.float32).reshape(shape)


def _struct(outputs: list[Any]) -> pa.StructArray:
    columns = []
    for output in outputs:
        flat = pa.array(np.ascontiguousarray(output).reshape(-1))
        rows, width = output.shape
        if width == 1:
            columns.append(flat)
        else:
            offsets = np.arange(rows + 1, dtype=np.int32) * width
            columns.append(pa.ListArray.from_arrays(offsets, flat))
    return pa.StructArray.from_arrays(columns, [f"o{number}" for number in range(len(columns))])
