"""Estimators that tests fit, and the network that they train."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainyard.horovod import SparkBackend, Store, TorchEstimator

SECRET = "sv=2024&sig=k3yTh4tN0b0dyM4ySee"
"""A key of a store, which must not be told."""


def made_net() -> nn.Module:
    """A network whose class only this driver program knows."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Linear(64, 16)
            self.scores = nn.Linear(16, 10)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return torch.log_softmax(self.scores(torch.relu(self.hidden(pixels))), dim=1)

    torch.manual_seed(0)
    return Net()


def estimator_of(store: Store | None, **changed: Any) -> TorchEstimator:
    net = changed.pop("model", None) or made_net()
    optimizer = changed.pop("optimizer", None)
    given = {
        "backend": None if "num_proc" in changed else SparkBackend(num_proc=2, stdout=None),
        "store": store,
        "model": net,
        "optimizer": optimizer or torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5),
        "loss": lambda output, label: nn.functional.nll_loss(output, label.long()),
        "metrics": [[lambda output, label: (output.argmax(1) == label.long()).float().mean()]],
        "feature_cols": ["pixels"],
        "label_cols": ["digit"],
        "input_shapes": [[-1, 64]],
        "batch_size": 16,
        "epochs": 3,
        "random_seed": 1,
        "partitions_per_process": 1,
        "verbose": 0,
        **changed,
    }
    return TorchEstimator(**{name: value for name, value in given.items() if value is not None})


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
