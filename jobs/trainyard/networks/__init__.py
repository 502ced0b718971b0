"""Networks: how one is built from its import path and parameters, and how it is checked."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import nn

from trainyard.dataset import CLASSIFICATION
from trainyard.errors import SettingError, nearest


def build(network: str, params: Mapping[str, Any]) -> nn.Module:
    """Make a network.

    Args:
        network: import path, as `package.module:Class`.
        params: the class's keyword arguments.

    Raises:
        SettingError: the module cannot be imported, the class is not there or is no `nn.Module`,
            or it does not take the parameters.
    """
    kind = _find(network)
    arguments = inspect.signature(kind).parameters
    takes_any = any(argument.kind is argument.VAR_KEYWORD for argument in arguments.values())
    for name in params:
        if name not in arguments and not takes_any:
            problem = f"{network} takes no argument {name!r}"
            raise SettingError("network_params", dict(params), problem, nearest(name, arguments))
    try:
        made = kind(**params)
    except Exception as error:
        problem = f"{network} cannot be made with them: {type(error).__name__}: {error}"
        raise SettingError(
            "network_params", dict(params), problem, "Change them, or the network's class."
        ) from error
    return made


def _find(network: str) -> type[nn.Module]:
    name, _, attribute = network.partition(":")
    try:
        module = importlib.import_module(name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        problem = (
            f"there is no module {error.name!r} on this machine's Python path"  # type: ignore[attr-defined]
            if missing
            else f"importing {name!r} failed with {type(error).__name__}: {error}"
        )
        fix = (
            "Correct the name, or ship the module with spark-submit's --py-files."
            if missing
            else "Correct the module, or install what it imports where the ranks run."
        )
        raise SettingError("network", network, problem, fix) from error
    if not hasattr(module, attribute):
        names = [key for key, value in vars(module).items() if _is_network(value)] or dir(module)
        problem = f"module {name!r} has no {attribute!r}"
        raise SettingError("network", network, problem, nearest(attribute, names))
    found = getattr(module, attribute)
    if not _is_network(found):
        raise SettingError(
            "network", network, "it is not a torch.nn.Module", "Name a class that derives from it."
        )
    return found  # type: ignore[no-any-return]


def _is_network(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module) and value is not nn.Module


def check_fit(
    network: nn.Module,
    name: str,
    *,
    input_shape: Sequence[int],
    width: int,
    outputs: int,
    task: str = CLASSIFICATION,
) -> None:
    """Check that a network takes a dataset's rows and gives what its task needs.

    Args:
        network: the network.
        name: its import path, for the errors.
        input_shape: shape of one row's features, as the network takes them.
        width: number of features of a row.
        outputs: numbers that it must give for a row: a score for each class, or the value.
        task: what the dataset is for.

    Raises:
        SettingError: naming the setting that does not fit.
    """
    if prod(input_shape) != width:
        product = " x ".join(map(str, input_shape))
        raise SettingError(
            "input_shape",
            list(input_shape),
            f"{product} = {prod(input_shape)}, but a row of the dataset has {width} features",
            f"Give a shape whose product is {width}.",
        )
    for key, parameter in network.named_parameters():
        if parameter.dtype != torch.float32:
            raise SettingError(
                "network", name, f"its parameter {key!r} is {parameter.dtype}", "Make it float32."
            )
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise SettingError(
            "network", name, "it has no parameter to train", "Leave one with requires_grad."
        )
    training = network.training
    try:
        with torch.inference_mode():
            scores = network.eval()(torch.zeros(2, *input_shape))
    except Exception as error:
        raise SettingError(
            "network",
            name,
            f"it cannot take rows of shape {list(input_shape)}: {type(error).__name__}: {error}",
            "Change input_shape or network_params to fit each other.",
        ) from error
    finally:
        network.train(training)
    found = list(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if found != [2, outputs]:
        has = f"has {outputs} classes" if task == CLASSIFICATION else "is for regression"
        raise SettingError(
            "network",
            name,
            f"for 2 rows it gives {found}, but the dataset {has}, so it must give {[2, outputs]}",
            f"Make its last layer {outputs} wide, in the class or by network_params.",
        )
