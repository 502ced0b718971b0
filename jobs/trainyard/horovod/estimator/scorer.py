"""How a worker's process applies a PyTorch model."""

from __future__ import annotations

from typing import Any

import torch

from trainyard.ml.parameter import listed
from trainyard.ml.scorer import Floats, Predict


def load(data: bytes) -> Any:
    """The model that the driver sent."""
    from pyspark import cloudpickle

    torch.set_num_threads(1)
    return cloudpickle.loads(data)


def predictor(input_shapes: list[list[int]], widths: list[int | None]) -> Predict:
    """What applies the model.

    Args:
        input_shapes: of each input, the first number -1.
        widths: numbers that each output has for a row; None for a single one.
    """

    def predict(model: Any, inputs: list[Floats]) -> list[Any]:
        shaped = zip(inputs, input_shapes, strict=True)
        with torch.inference_mode():
            found = model(*[torch.from_numpy(rows.reshape(shape)) for rows, shape in shaped])
        rows = len(inputs[0])
        return [
            output.double().numpy().reshape(rows if width is None else (rows, width))
            for output, width in zip(listed(found), widths, strict=True)
        ]

    return predict
