"""The optimizer of a training, kept from importing torch's compiler: 3 seconds and 70 MB a rank.

`torch.optim` wraps its methods for the sake of `torch.compile`, and each wrapper imports the
compiler on first use. The wrapped functions are called here; what they compute is the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch
from torch import nn

from trainyard.errors import SettingError
from trainyard.specs import TrainHorovod

_WRAPPED = ("add_param_group", "state_dict", "load_state_dict")


def without_compiler() -> None:
    """Keep the methods of optimizers from importing torch's compiler; see the module."""
    for name in _WRAPPED:
        wrapped = inspect.unwrap(getattr(torch.optim.Optimizer, name))
        wrapped.__dict__.setdefault("__dynamo_disable", wrapped)


def make(
    spec: TrainHorovod, parameters: Iterable[nn.Parameter], ranks: int
) -> torch.optim.Optimizer:
    """The optimizer that the settings name, its learning rate scaled by ranks when they say so."""
    without_compiler()
    kind = getattr(torch.optim, spec.optimizer)
    made: torch.optim.Optimizer = kind(parameters, lr=rate(spec, ranks), **spec.optimizer_params)
    return made


def check(spec: TrainHorovod) -> None:
    """Raise `SettingError` for values that the optimizer itself refuses."""
    try:
        made = make(spec, [nn.Parameter(torch.zeros(1))], spec.ranks)
        made.param_groups[0]["params"][0].grad = torch.ones(1)
        step(made)
        step(made)  # some values count from the second step on
    except (ValueError, OverflowError, RuntimeError, TypeError) as error:
        raise SettingError(
            "optimizer_params",
            spec.optimizer_params,
            f"{spec.optimizer} with learning_rate {spec.learning_rate:g} refuses it: {error}",
            "Correct the value that it names.",
        ) from error


def rate(spec: TrainHorovod, ranks: int) -> float:
    """The full learning rate."""
    return spec.learning_rate * (ranks if spec.scale_learning_rate else 1)


@torch.no_grad()
def step(optimizer: torch.optim.Optimizer) -> None:
    """Change the parameters by their gradients."""
    inspect.unwrap(type(optimizer).step)(optimizer)
