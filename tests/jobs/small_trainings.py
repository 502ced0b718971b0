"""Small trainings in this process with one rank, and what plain PyTorch makes of the same."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own idiom
from made_datasets import write_dataset

from trainyard import networks
from trainyard.dataset import Dataset
from trainyard.horovod.history import TrainResult
from trainyard.horovod.launch import InProcessLauncher
from trainyard.horovod.loader import Loader, Plan
from trainyard.horovod.objective import LOSSES, check_objective
from trainyard.horovod.train import train
from trainyard.specs import TrainHorovod

WIDTH = 4


def numbers(rows: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows and a value of each that is linear in them, but for some noise."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    values = features @ np.array([1.0, -2.0, 0.5, 3.0]) + 1 + 0.1 * rng.normal(size=rows)
    return features, values.astype(np.float64)


def sorts(rows: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows of three classes, of which the last is rare."""
    features, values = numbers(rows, seed)
    return features, np.digitize(values, [0.0, 6.0]).astype(np.int64)


def regression(directory: Path, **more: Any) -> Dataset:
    splits = {"train": numbers(200), "validation": numbers(50, seed=1)}
    return write_dataset(directory, splits, classes=0, row_group_rows=64, **more)


def classification(directory: Path, **more: Any) -> Dataset:
    splits = {"train": sorts(200), "validation": sorts(50, seed=1)}
    return write_dataset(directory, splits, classes=3, row_group_rows=64, **more)


def spec_of(run_dir: Path, dataset: Dataset, **settings: Any) -> TrainHorovod:
    given: dict[str, Any] = {
        "run_dir": str(run_dir),
        "dataset": dataset.directory,
        "model_name": "test",
        "network": "torch.nn:Linear",
        "network_params": {"in_features": WIDTH, "out_features": dataset.outputs},
        "input_shape": [WIDTH],
        "ranks": 1,
        "epochs": 3,
        "batch_size": 32,
        "learning_rate": 0.005,
        **settings,
    }
    return TrainHorovod.from_mapping(given)


def run(spec: TrainHorovod, dataset: Dataset) -> TrainResult:
    check_objective(spec, dataset)
    [result] = InProcessLauncher().run(functools.partial(train, spec, dataset, claim=1), 1)
    return result


def plainly(
    spec: TrainHorovod, dataset: Dataset, weights: Sequence[float] | None = None
) -> torch.nn.Module:
    """The network after the same epochs of plain PyTorch; `weights` of the classes, if any."""
    torch.manual_seed(spec.seed)
    network = networks.build(spec.network, spec.network_params)
    optimizer = torch.optim.SGD(network.parameters(), lr=spec.learning_rate, momentum=0.9)
    plan = Plan(rows=dataset.rows("train"), size=1, batch_size=spec.batch_size)
    loader = Loader(dataset, "train", plan, 0, streaming=True)
    for epoch in range(1, spec.epochs + 1):
        for batch in loader.shuffled(seed=spec.seed, epoch=epoch):
            optimizer.zero_grad()
            scores = network(batch.features)
            if dataset.task == "regression":
                loss = LOSSES[spec.loss](scores.squeeze(1), batch.labels, reduction="none")
                each = torch.ones(len(batch)) if batch.weights is None else batch.weights
            else:
                loss = F.cross_entropy(scores, batch.labels, reduction="none")
                each = torch.tensor(weights or [1.0] * 3)[batch.labels]
            torch.autograd.backward((loss * each).sum() / each.sum())
            if spec.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(network.parameters(), spec.clip_norm)
            optimizer.step()
    return network


def assert_weights(result: TrainResult, network: torch.nn.Module) -> None:
    """The kept weights are these; the tests' losses fall, so that the last epoch is the best."""
    assert result.best.number == len(result.history)
    assert result.state is not None
    for name, value in network.state_dict().items():
        assert torch.allclose(result.state[name], value, atol=1e-5), name
