"""What a training makes small: the loss of its rows, by the weights of rows and of classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own idiom
from torch import Tensor

from trainyard.dataset import CLASSIFICATION, Dataset
from trainyard.errors import SettingError
from trainyard.horovod.pieces import Rows
from trainyard.specs import TrainHorovod
from trainyard.specs.class_weights import check_fit, class_weight_values

LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": F.huber_loss,
}
"""The loss functions by their setting's value."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How a batch did.

    Attributes:
        loss: sum of its rows' losses times their weights.
        weight: sum of its rows' weights.
        quality: how many rows were right; for a regression the sum of squared errors.
    """

    loss: Tensor
    weight: Tensor
    quality: Tensor

    def sums(self) -> Tensor:
        """The three as float64 on the CPU."""
        return torch.stack([self.loss.detach().double(), self.weight, self.quality]).cpu()


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Judges batches.

    Attributes:
        loss: a name in `LOSSES`.
        class_weights: what a row of each class counts, float32 [classes], if not the same.
        weighted: whether rows count differently at all.
    """

    loss: str
    class_weights: Tensor | None
    weighted: bool

    def judge(self, scores: Tensor, batch: Rows) -> Judged:
        """Compare what the network gave, [rows, outputs], with the labels."""
        classes = self.loss == "cross_entropy"
        given = scores if classes else scores.squeeze(1)
        quality = (
            (scores.argmax(dim=1) == batch.labels).sum().double()
            if classes
            else (given.detach() - batch.labels).double().square().sum()
        )
        function = LOSSES[self.loss]
        if not self.weighted:
            loss = function(given, batch.labels, reduction="sum")
            weight = quality.new_tensor(len(batch))
            return Judged(loss=loss, weight=weight, quality=quality)
        weights = self._weights(batch)
        loss = (function(given, batch.labels, reduction="none") * weights).sum()
        return Judged(loss=loss, weight=weights.double().sum(), quality=quality)

    def _weights(self, batch: Rows) -> Tensor:
        if self.class_weights is None:
            assert batch.weights is not None  # noqa: S101 - or nothing is weighted
            return batch.weights
        weights = self.class_weights[batch.labels]
        return weights if batch.weights is None else weights * batch.weights


def objective_of(spec: TrainHorovod, dataset: Dataset, class_rows: Tensor | None) -> Objective:
    """The objective that the settings name for a dataset.

    Args:
        spec: the job's settings; `check_objective` has let them through.
        class_rows: training rows of each class, [classes], where balance is wanted.
    """
    loss = spec.loss
    if loss == "auto":
        loss = "cross_entropy" if dataset.task == CLASSIFICATION else "mse"
    weights: Tensor | None = None
    if class_rows is not None:
        # A class without rows is never weighed: the clamp only keeps infinity out.
        weights = class_rows.sum() / (len(class_rows) * class_rows.clamp(min=1))
    elif class_weight_values(spec.class_weights) is not None:
        weights = torch.tensor(class_weight_values(spec.class_weights))
    return Objective(
        loss=loss,
        class_weights=None if weights is None else weights.float(),
        weighted=weights is not None or dataset.weight is not None,
    )


def check_objective(spec: TrainHorovod, dataset: Dataset) -> None:
    """Raise `SettingError` where loss or class weights do not suit a dataset."""
    classes = dataset.task == CLASSIFICATION
    fits = ("auto", "cross_entropy") if classes else ("auto", "mse", "l1", "huber")
    if spec.loss not in fits:
        raise SettingError(
            "loss",
            spec.loss,
            f"the dataset is made for {dataset.task}",
            f"Use one of {', '.join(fits)}, or prepare the dataset with another 'task'.",
        )
    check_fit(spec.class_weights, task=dataset.task, classes=dataset.classes)
