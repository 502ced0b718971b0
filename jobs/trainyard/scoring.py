"""Scores rows with stored models of any engine: on one thread, the same for every job."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.dataset import REGRESSION
from trainyard.executors import is_local
from trainyard.models import XGBOOST, StoredModel

if TYPE_CHECKING:
    import torch
    from pyspark import Broadcast
    from pyspark.sql import SparkSession
    from torch import nn

Matrix = np.ndarray[Any, Any]

Scores = Callable[[Matrix, Matrix | None], Matrix]
"""What a model gives for features [rows, width] and base margins [rows, margins], if it takes any:
float64 [rows, outputs], of which the softmax is a classification's probabilities."""


class Scorer:
    """A model at work in one process.

    Args:
        model: the stored model.
        batch_size: rows that a network scores at a time; trees take all at once.
        device: where a network scores: `auto`, `cpu` or `gpu`.
        is_alone: whether the driver is the only executor, to which Spark gives no GPU.
    """

    def __init__(
        self, model: StoredModel, batch_size: int, device: str = "cpu", *, is_alone: bool = False
    ) -> None:
        self.meta = model.meta
        if self.meta.engine == XGBOOST:
            self._scores = _trees(model)
        else:
            self._scores = _network(model, batch_size, place(device, is_alone=is_alone))

    def log_probabilities(self, features: Matrix, margins: Matrix | None = None) -> Matrix:
        """The logarithm of each class's probability.

        Args:
            features: float32 [rows, width].
            margins: base margins [rows, margins], of a model that was trained with them.

        Returns:
            float64 [rows, classes]; not finite where the model's scores are not.
        """
        scores = self._scores(features, margins)
        with np.errstate(invalid="ignore"):  # infinite scores become NaN
            scores = scores - scores.max(axis=1, keepdims=True, initial=-np.inf)
            logs: Matrix = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return logs

    def values(self, features: Matrix, margins: Matrix | None = None) -> Matrix:
        """The numbers that a regression predicts, float64 [rows]; arguments as above."""
        return self._scores(features, margins)[:, 0]


def place(device: str, *, is_alone: bool) -> torch.device:
    """The GPU that Spark gave this task, or the machine's where the driver works alone, or the CPU.

    Raises:
        SettingError: a GPU is wanted or was given, and cannot be used.
    """
    import torch

    from trainyard.horovod.device import choose

    if is_alone and device != "cpu" and torch.cuda.is_available():
        return torch.device("cuda")
    return choose(device)


def _network(model: StoredModel, batch_size: int, place: torch.device) -> Scores:
    import torch

    torch.set_num_threads(1)
    meta = model.meta
    network = _for_images(model.build()) if len(meta.input_shape) == 3 else model.build()
    network.to(place)

    def scores(features: Matrix, margins: Matrix | None) -> Matrix:
        scored = [np.empty((0, meta.outputs))]
        with torch.inference_mode():
            for start in range(0, len(features), batch_size):
                rows = torch.tensor(features[start : start + batch_size], device=place)
                found = network(rows.reshape(-1, *meta.input_shape))
                scored.append(found.double().cpu().numpy())
        return np.concatenate(scored)

    return scores


def _for_images(network: nn.Module) -> nn.Module:
    """A network of images that keeps a pixel's channels together, in which it is twice as fast."""
    import torch

    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def batch_within(model: StoredModel, most: int, megabytes: int) -> int:
    """How many rows a network can score at a time within some memory; 1 at least.

    Args:
        model: the stored model; trees take all rows at once.
        most: rows to score at a time at most.
        megabytes: what the layer that needs most may take, for what goes in and what comes out.
    """
    if model.meta.engine == XGBOOST:
        return most
    import torch

    network = model.build()
    needed = [0]

    def note(_: nn.Module, given: Any, found: Any) -> None:
        tensors = [t for t in (*given, found) if isinstance(t, torch.Tensor)]
        needed.append(sum(t.numel() * t.element_size() for t in tensors))

    for layer in network.modules():
        if not any(layer.children()):
            layer.register_forward_hook(note)
    with torch.inference_mode():
        network(torch.zeros(2, *model.meta.input_shape))
    return max(1, min(most, megabytes * 10**6 * 2 // max(1, *needed)))


def _trees(model: StoredModel) -> Scores:
    booster, meta = model.booster(), model.meta
    kind = "value" if meta.task == REGRESSION else "margin"
    missing = np.nan if meta.missing is None else meta.missing

    def scores(features: Matrix, margins: Matrix | None) -> Matrix:
        if not len(features):
            return np.empty((0, meta.outputs))
        found = booster.inplace_predict(
            features, predict_type=kind, missing=missing, base_margin=margins
        ).astype(np.float64)
        if meta.task != REGRESSION and found.ndim == 1:
            # The margin is the logarithm of the odds of the second class.
            return np.stack([np.zeros(len(found)), found], axis=1)
        return found.reshape(len(found), -1)

    return scores


def check_model(model: StoredModel, name: str) -> None:
    """Build a model here and score two rows of zeros: what cannot work fails before the first row.

    Raises:
        JobError: the model cannot be built, or does not fit its own meta.json.
    """
    meta = model.meta
    if meta.engine == XGBOOST:
        from trainyard.xgboost.booster import check_fit

        check_fit(model.booster(), name, width=meta.width, outputs=meta.outputs)
        return
    from trainyard import networks

    networks.check_fit(
        model.build(),
        name,
        input_shape=meta.input_shape,
        width=meta.width,
        outputs=meta.outputs,
        task=meta.task,
    )


class Shipped:
    """A model on its way to the workers, where each process builds it once."""

    def __init__(
        self, spark: SparkSession, model: StoredModel, batch_size: int, device: str = "cpu"
    ) -> None:
        self._model: Broadcast[StoredModel] = spark.sparkContext.broadcast(model)
        self._batch_size = batch_size
        self._device = device
        self._is_alone = is_local(spark.sparkContext)
        self._id = uuid.uuid4().hex

    def scorer(self) -> Scorer:
        """The model of this worker; call it in a task."""
        if self._id not in _SCORERS:
            _SCORERS[self._id] = Scorer(
                self._model.value, self._batch_size, self._device, is_alone=self._is_alone
            )
        return _SCORERS[self._id]


_SCORERS: dict[str, Scorer] = {}
