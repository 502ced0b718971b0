"""What TorchEstimator makes: a transformer that adds predictions, batches at a time."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from pyspark.ml import Model

from trainyard.errors import JobError, SettingError
from trainyard.horovod.estimator import scorer
from trainyard.horovod.estimator.params import ALLOW_PICKLE, MODEL, OBJECTS, shapes
from trainyard.ml import objects
from trainyard.ml.parameter import listed
from trainyard.ml.predicting import Output, add_predictions
from trainyard.ml.saving import Savable
from trainyard.ml.scorer import Input
from trainyard.ml.settings import Tuned, tuned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
        return objects.optimizer_of(self.value("model"), self.value("optimizer"))

    def setLabelColoumns(self, value: list[str]) -> Any:  # noqa: N802 - as Horovod spells it
        """As `setLabelColumns`."""
        return self.setLabelColumns(value)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        features = list(self.value("feature_columns") or ())
        input_shapes = shapes("input_shapes", self.value("input_shapes"), features)
        if self.value("model") is None:
            raise SettingError("model", None, "there is nothing to predict with", "Set model.")
        model = copy.deepcopy(self.value("model")).cpu().eval()
        names, widths = self.getOutputCols(), _outputs(model, input_shapes)
        if len(widths) != len(names):
            problem = f"the model gives {len(widths)} outputs"
            raise SettingError("outputCols", names, problem, "Name one column for each.")
        sizes = [math.prod(shape[1:]) for shape in input_shapes]
        return add_predictions(
            dataset,
            [Input(name=name, width=size) for name, size in zip(features, sizes, strict=True)],
            [Output(name=name, width=width) for name, width in zip(names, widths, strict=True)],
            model=_to_bytes(model),
            load=scorer.load,
            predict=scorer.predictor(input_shapes, widths),
        )

    def saved(self) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """What is written of it; a loss that only a pickle can hold is left out of a plain one."""
        values = {p.name: v for p, v in self._paramMap.items()}
        if not values.get("allow_pickle"):
            values = {n: v for n, v in values.items() if n not in ("loss", "loss_constructors")}
        return objects.split(type(self).__name__, values, OBJECTS)

    def restore(self, described: dict[str, Any], data: bytes, path: str) -> None:
        """Take back what `saved` gave."""
        self._set(**objects.joined(described, data, path))


_TRIED = 2
"""Rows that the model is tried with."""


def _outputs(model: Any, input_shapes: list[list[int]]) -> list[int | None]:
    """How many numbers each output has for a row; None for a single one."""
    import torch

    try:
        with torch.inference_mode():
            found = model(*[torch.zeros(_TRIED, *shape[1:]) for shape in input_shapes])
        sizes = [output.numel() for output in listed(found)]
        if any(size % _TRIED for size in sizes):
            raise ValueError(f"it gives {sizes} numbers for {_TRIED} rows")
    except Exception as error:
        raise JobError(
            f"the model fails for rows of zeros: {type(error).__name__}: {error}.",
            f"Correct input_shapes, which are {input_shapes}.",
        ) from error
    return [None if size == _TRIED else size // _TRIED for size in sizes]


def _to_bytes(model: Any) -> bytes:
    """The model for the processes of its own session, which it never leaves."""
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(model))  # type: ignore[no-untyped-call]
