"""Networks and stored models that tests can tell the answers of."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainyard.dataset import Dataset
from trainyard.models import ModelMeta, save_model


class Linear(nn.Module):
    """Scores classes by a linear layer, after dropout that only training has."""

    def __init__(self, width: int = 2, classes: int = 3) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.layer = nn.Linear(width, classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(self.dropout(features.flatten(1)))  # type: ignore[no-any-return]


class Broken(Linear):
    """Gives a score that is not finite for a row whose first feature is above 100."""

    def forward(self, features: Tensor) -> Tensor:
        bad = torch.where(features.flatten(1)[:, :1] > 100, float("nan"), 0.0)
        return super().forward(features) + bad


def meta_for(dataset: Dataset, **changed: Any) -> ModelMeta:
    """The meta.json of a `Linear` for a dataset."""
    plain: dict[str, Any] = {
        "task": dataset.task,
        "network": "tiny_models:Linear",
        "network_params": {"width": dataset.width, "classes": dataset.outputs},
        "input_shape": (dataset.width,),
        "features": dataset.features,
        "key": dataset.key,
        "label": dataset.label,
        "classes": dataset.classes,
        "width": dataset.width,
        "dataset_fingerprint": dataset.fingerprint,
        "settings": {"epochs": 1},
        "versions": {"torch": torch.__version__},
    }
    return ModelMeta(**{**plain, **changed})


def store_linear(directory: Path, dataset: Dataset, weight: Tensor, **changed: Any) -> str:
    """Store a `Linear` with a weight [classes, width] and no bias; return its directory."""
    state = {"layer.weight": weight, "layer.bias": torch.zeros(len(weight))}
    save_model(str(directory), state, meta_for(dataset, **changed))
    return str(directory)


class Fragile(Linear):
    """Once, when it meets a row whose first feature is above 100, ends its own process.

    It waits until some parts are committed by others.

    Args:
        run_dir: the run directory with the commits, where it also remembers that it died.
        parts: how many must be committed; with 0 it lives.
    """

    def __init__(self, width: int, classes: int, run_dir: str, parts: int) -> None:
        super().__init__(width, classes)
        self._run_dir = Path(run_dir)
        self._parts = parts

    def forward(self, features: Tensor) -> Tensor:
        died = self._run_dir / "died"
        if self._parts and (features.flatten(1)[:, 0] > 100).any() and not died.exists():
            deadline = time.monotonic() + 30
            while len(list(self._run_dir.glob("commits/*/0*.json"))) < self._parts:
                assert time.monotonic() < deadline, "nobody commits a part"
                time.sleep(0.02)
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(features)
