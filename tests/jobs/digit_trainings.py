"""Trainings of the real network on a few digits, in this process with one rank."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from made_datasets import some_digits, write_dataset

from trainyard import store
from trainyard.dataset import Dataset
from trainyard.horovod.history import TrainResult
from trainyard.horovod.launch import InProcessLauncher
from trainyard.horovod.train import train
from trainyard.specs import TrainHorovod


def few_digits(directory: Path) -> Dataset:
    """600 digits to train on, 100 to validate."""
    splits = {"train": some_digits(0, 600), "validation": some_digits(600, 700)}
    return write_dataset(directory, splits, classes=10)


def spec_of(run_dir: Path, dataset: Dataset, **settings: Any) -> TrainHorovod:
    given = {
        "run_dir": str(run_dir),
        "dataset": dataset.directory,
        "model_name": "test",
        "ranks": 1,
        "epochs": 3,
        "batch_size": 64,
        **settings,
    }
    return TrainHorovod.from_mapping(given)


def run(spec: TrainHorovod, dataset: Dataset) -> TrainResult:
    [result] = InProcessLauncher().run(functools.partial(train, spec, dataset, claim=1), 1)
    return result


def losses(result: TrainResult) -> list[float]:
    return [epoch.loss for epoch in result.history]


def same_weights(one: TrainResult, other: TrainResult) -> bool:
    assert one.state is not None
    assert other.state is not None
    return all(torch.equal(value, other.state[name]) for name, value in one.state.items())


def checkpoint_names(run_dir: Path) -> list[str]:
    return store.list_names(str(run_dir / "checkpoints"))
