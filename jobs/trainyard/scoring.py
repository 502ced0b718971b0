"""Scores rows with stored models: in eval mode, on one thread, the same for every job."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from trainyard import networks
from trainyard.models import StoredModel

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession


class Scorer:
    """A model at work in one process.

    Args:
        model: the stored model.
        batch_size: rows scored at a time.
    """

    def __init__(self, model: StoredModel, batch_size: int) -> None:
        self.meta = model.meta
        self._network: nn.Module = model.build()
        self._batch_size = batch_size

    def log_probabilities(self, features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The logarithm of each class's probability.

        Args:
            features: float32 [rows, width].

        Returns:
            float64 [rows, classes]; not finite where the network's scores are not.
        """
        scores = torch.from_numpy(self._scores(features))
        logs: np.ndarray[Any, Any] = scores.log_softmax(dim=1).numpy()
        return logs

    def values(self, features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The numbers that a regression predicts, float64 [rows]; `features` as above."""
        return self._scores(features)[:, 0]

    def _scores(self, features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What the network gives, float64 [rows, outputs]."""
        shape = self.meta.input_shape
        scored = [np.empty((0, self.meta.outputs))]
        with torch.inference_mode():
            for start in range(0, len(features), self._batch_size):
                rows = torch.tensor(features[start : start + self._batch_size]).reshape(-1, *shape)
                scored.append(self._network(rows).double().numpy())
        return np.concatenate(scored)


def check_model(model: StoredModel, name: str) -> None:
    """Build a model here and score two rows of zeros: what cannot work fails before the first row.

    Raises:
        JobError: the network cannot be built, or does not fit its own meta.json.
    """
    meta = model.meta
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

    def __init__(self, spark: SparkSession, model: StoredModel, batch_size: int) -> None:
        self._model: Broadcast[StoredModel] = spark.sparkContext.broadcast(model)
        self._batch_size = batch_size
        self._id = uuid.uuid4().hex

    def scorer(self) -> Scorer:
        """The model of this worker; call it in a task."""
        torch.set_num_threads(1)
        if self._id not in _SCORERS:
            _SCORERS[self._id] = Scorer(self._model.value, self._batch_size)
        return _SCORERS[self._id]


_SCORERS: dict[str, Scorer] = {}
