"""Trainings of an estimator's loop in this process with one rank, and their rows."""

from __future__ import annotations

import copy
import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from trainyard.dataset import DataFile
from trainyard.horovod.estimator.loop import train
from trainyard.horovod.estimator.rows import Columns, dataset_of
from trainyard.horovod.estimator.work import Work
from trainyard.horovod.launch import InProcessLauncher
from trainyard.parts import PartWriter, lists

ROWS, HELD = 50, 20
COLUMNS = Columns(
    features=("x", "one"), labels=("y",), weight=None, widths={"x": 3, "one": 0, "y": 0}
)


class Net(nn.Module):
    """Takes the two features and gives a number."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(torch.cat([torch.tanh(self.first(x)), one], dim=1))
        return out


def values(rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    one = rng.normal(size=rows).astype(np.float32)
    return {"x": x, "one": one, "y": (x.sum(axis=1) - one).astype(np.float32)}


def write(directory: Path, split: str, rows: dict[str, Any]) -> DataFile:
    columns = {
        name: lists(value) if value.ndim == 2 else pa.array(value) for name, value in rows.items()
    }
    batch = pa.RecordBatch.from_pydict(columns)
    with PartWriter(str(directory), f"{split}/part.parquet", batch.schema, 16) as writer:
        writer.write(batch)
    return writer.written


def work_of(directory: Path, **changed: Any) -> Work:
    """A training of 50 rows, 20 of them to validate by."""
    splits: dict[str, tuple[DataFile, ...]] = {
        "train": (write(directory / "rows", "train", values(ROWS, 0)),),
        "validation": (write(directory / "rows", "validation", values(HELD, 1)),),
    }
    columns = changed.pop("columns", COLUMNS)
    dataset = dataset_of(str(directory / "rows"), columns, splits)
    torch.manual_seed(3)
    model = changed.pop("model", None) or Net()
    given: dict[str, Any] = {
        "run_dir": str(directory / "run"),
        "access": None,
        "datasets": {"train": dataset, "validation": dataset},
        "columns": columns,
        "made_by": {"seed": 5},
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5),
        "losses": [nn.functional.mse_loss],
        "constructors": None,
        "loss_weights": [1.0],
        "metrics": [],
        "callbacks": [],
        "minibatch": None,
        "transform": None,
        "input_shapes": [[-1, 3], [-1, 1]],
        "label_shapes": None,
        "epochs": 3,
        "batch_size": 16,
        "val_batch_size": 16,
        "steps": None,
        "val_steps": None,
        "passes": 1,
        "shuffle": False,
        "streaming": True,
        "seed": 5,
        "device": "cpu",
        "compression": "none",
        "stall_timeout": 60,
        "verbose": 0,
    }
    return Work(**{**given, **changed})


def run(work: Work) -> dict[str, Any]:
    """The last state; the work's own model stays as it is."""
    [state] = InProcessLauncher().run(functools.partial(train, copy.deepcopy(work)), 1)
    assert state is not None
    return state


def batches(work: Work, split: str) -> list[dict[str, torch.Tensor]]:
    """A split's rows as an unshuffled epoch cuts them."""
    rows = values(ROWS, 0) if split == "train" else values(HELD, 1)
    plan = work.plan(split, 1)
    ends = np.cumsum([0, *plan.batches(0)])
    return [
        {name: torch.from_numpy(value[start:stop]) for name, value in rows.items()}
        for start, stop in itertools.pairwise(ends)
    ]


def outputs(model: nn.Module, rows: dict[str, torch.Tensor]) -> torch.Tensor:
    out: torch.Tensor = model(rows["x"], rows["one"].reshape(-1, 1))
    return out
