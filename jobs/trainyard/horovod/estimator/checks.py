"""What an estimator's parameters must be, and what they mean."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import UninitializedParameter

from trainyard.errors import SettingError
from trainyard.horovod.estimator.backend import SparkBackend
from trainyard.horovod.estimator.store import Store
from trainyard.ml.objects import SavedOptimizer
from trainyard.ml.parameter import listed

Of = Callable[[str], Any]
"""Gives a parameter's value by its name."""

_MOMENTS = ("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_end")


_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "model": ("torch.nn.Module", (torch.nn.Module,)),
    "optimizer": ("torch.optim.Optimizer", (torch.optim.Optimizer, SavedOptimizer)),
    "store": ("trainyard.horovod.Store", (Store,)),
}


def needed(of: Of, name: str, why: str) -> Any:
    """A parameter's value, which must be there.

    Raises:
        SettingError: it is not, saying why; or it is of another kind.
    """
    value = of(name)
    if value is None or (isinstance(value, list) and not value):
        raise SettingError(name, value, why, f"Set {name}.")
    kind, classes = _KINDS.get(name, ("", (object,)))
    if not isinstance(value, classes):
        raise SettingError(name, value, f"it is no {kind}", f"Give an object of {kind}.")
    return value


def check_model(model: torch.nn.Module) -> None:
    """Raise `SettingError` for a model that there is nothing to train of."""
    parameters = list(model.parameters())
    kind = type(model).__qualname__
    if any(isinstance(one, UninitializedParameter) for one in parameters):
        raise SettingError(
            "model",
            kind,
            "it has parameters whose shape is not known yet",
            "Call it once with a batch before its optimizer is made.",
        )
    if not any(parameter.requires_grad for parameter in parameters):
        raise SettingError("model", kind, "no parameter of it is trained", "Thaw one.")


def check_functions(of: Of) -> None:
    """Raise `SettingError` for functions that are missing or none."""
    if (of("loss") is None) == (of("loss_constructors") is None):
        raise SettingError(
            "loss",
            of("loss"),
            "there must be either loss or loss_constructors, and not both",
            "Set loss to a function of output and label, such as "
            "torch.nn.functional.cross_entropy.",
        )
    for name in ("train_minibatch_fn", "transformation_fn"):
        if of(name) is not None and not callable(of(name)):
            raise SettingError(name, of(name), "it is no function", "Give a function.")
    for callback in listed(of("callbacks") or ()):
        if not callable(callback) and not any(hasattr(callback, name) for name in _MOMENTS):
            raise SettingError(
                "callbacks", callback, "it can be called in no way", "Give it on_epoch_end."
            )


def check_validation(of: Of) -> None:
    """Raise `SettingError` for a validation that is neither a share nor a column."""
    value = of("validation")
    if value is None or isinstance(value, str):
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise SettingError(
            "validation",
            value,
            "it is neither a share of the rows nor a column",
            "Give a number from 0 to below 1, or the name of a column of booleans.",
        )


def backend_of(of: Of) -> SparkBackend:
    """What starts the ranks.

    Raises:
        SettingError: it is none, or there are two numbers of ranks.
    """
    backend, ranks = of("backend"), of("num_proc")
    if backend is not None and ranks is not None:
        raise SettingError(
            "num_proc", ranks, "the backend says how many ranks there are", "Give one of both."
        )
    backend = SparkBackend(ranks) if backend is None else backend
    if not isinstance(backend, SparkBackend):
        raise SettingError(
            "backend",
            type(backend).__qualname__,
            "it is no SparkBackend of this library",
            "Use trainyard.horovod.SparkBackend.",
        )
    return backend


def for_each(value: Any, labels: int) -> list[Any]:
    """A list of one for each label; one alone is every label's."""
    found = listed(value)
    return found * labels if len(found) == 1 else found


def together(model: torch.nn.Module, optimizer: Any) -> tuple[torch.nn.Module, Any]:
    """Copies of a model and of its optimizer, which has the copy's parameters.

    An optimizer of other parameters gets the model's in their order.

    Raises:
        SettingError: they are not as many, or there is no copy of the model.
    """
    try:
        return _copies(model, optimizer)
    except (TypeError, RuntimeError) as error:
        raise SettingError(
            "model",
            type(model).__qualname__,
            f"it cannot be copied, so that no rank can get it: {error}",
            "Leave out of it what cannot be pickled, such as a lock or an open file.",
        ) from error


def _copies(model: torch.nn.Module, optimizer: Any) -> tuple[torch.nn.Module, Any]:
    own = {id(parameter) for parameter in model.parameters()}
    if isinstance(optimizer, SavedOptimizer):
        made = copy.deepcopy(model)
        return made, optimizer.of(made)
    given = [p for group in optimizer.param_groups for p in group["params"]]
    if all(id(parameter) in own for parameter in given):
        pair: tuple[torch.nn.Module, Any] = copy.deepcopy((model, optimizer))
        return pair
    made = copy.deepcopy(model)
    try:
        fresh = type(optimizer)(made.parameters(), lr=1.0)
        fresh.load_state_dict(optimizer.state_dict())
    except (TypeError, ValueError) as error:
        raise SettingError(
            "optimizer",
            type(optimizer).__qualname__,
            "it has other parameters than the model",
            "Make it of model.parameters().",
        ) from error
    return made, fresh


def compression_of(value: Any) -> str:
    """`none` or `fp16` for `hvd.Compression.none` or `.fp16`."""
    name = "NoneCompressor" if value is None else getattr(value, "__name__", str(value))
    known = {"NoneCompressor": "none", "FP16Compressor": "fp16", "none": "none", "fp16": "fp16"}
    if name not in known:
        raise SettingError(
            "gradient_compression",
            value,
            "it is none of Horovod's",
            "Use hvd.Compression.none or hvd.Compression.fp16.",
        )
    return known[name]
