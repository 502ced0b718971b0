"""Parameters that are no JSON, as bytes and back: without a pickle where that is possible.

A module of PyTorch's own layers, an optimizer of PyTorch, a function that PyTorch has: these are
stored so that loading them runs no code of the file. All else, such as a class or a lambda of the
driver program, needs a pickle, which the user must have chosen by name.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trainyard.errors import JobError, SettingError
from trainyard.ml.parameter import FLAG, Setting

CHOICE = "allow_pickle"
"""The parameter by which a user chooses to save pickles."""

LOADING = "spark.trainyard.allowPickle"
"""Spark's setting by which a user chooses to load them: true, or false."""


def choice(doc: str) -> Setting:
    """That parameter."""
    return Setting(name=CHOICE, doc=doc, default=False, convert=FLAG)


class PickleWarning(UserWarning):
    """What is loaded can run code of whoever wrote it."""


class NoPickleError(Exception):
    """A value that only a pickle can hold; its text says why."""


def dump(owner: str, values: Mapping[str, Any], *, allow_pickle: bool) -> dict[str, Any]:
    """Values as what `load` takes: `plain`, JSON, and `data`, bytes.

    Args:
        owner: whose they are, for the error.
        values: parameters by name; an optimizer's parameters are those of `model`.
        allow_pickle: the user's choice.

    Raises:
        SettingError: a pickle is needed and was not chosen.
    """
    if allow_pickle:
        from pyspark import cloudpickle

        data = cloudpickle.dumps(dict(values))  # type: ignore[no-untyped-call]
        return {"kind": "pickle", "plain": {}, "data": data}
    plain: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    model = values.get("model")
    for name, value in values.items():
        try:
            plain[name] = (
                _optimizer(value, name, tensors, model)
                if name == "optimizer"
                else _plain(value, name, tensors)
            )
        except NoPickleError as error:
            raise _needs_pickle(owner, name, f"{error}.") from error
    data = _save(tensors)
    try:
        _restore(data)
    except JobError as error:
        raise _needs_pickle(owner, "model", error.cause) from error
    return {"kind": "plain", "plain": plain, "data": data}


def _needs_pickle(owner: str, name: str, why: str) -> SettingError:
    return SettingError(
        CHOICE,
        False,
        f"{name} of {owner} can be saved only as a pickle, since {why.rstrip('.')}",
        f"Set {CHOICE}=True to save it so: loading a pickle runs code of whoever wrote it, so load "
        "it only from a place that you trust. To keep the weights alone, save "
        "getModel().state_dict().",
    )


def load(kind: str, plain: Mapping[str, Any], data: bytes, *, sha256: str, path: str) -> Any:
    """The values that `dump` was given; a pickle is said to be one by a `PickleWarning`.

    Raises:
        JobError: the file is not the one that was saved.
    """
    check_unchanged(data, sha256, path)
    if kind == "pickle":
        from pyspark import cloudpickle

        warnings.warn(
            f"{path!r} is a pickle, chosen by {CHOICE} when it was saved: loading it runs code of "
            "whoever wrote it",
            PickleWarning,
            stacklevel=2,
        )
        return cloudpickle.loads(data)
    tensors = _restore(data)
    return {name: _value(value, tensors) for name, value in plain.items()}


def split(
    owner: str, values: Mapping[str, Any], names: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """A stage's parameters as plain ones, what describes the file of the others, and the file."""
    others = {n: v for n, v in values.items() if n in names and v is not None}
    made = dump(owner, others, allow_pickle=bool(values.get(CHOICE)))
    described = {"kind": made["kind"], "plain": made["plain"], "sha256": digest(made["data"])}
    return {n: v for n, v in values.items() if n not in names}, described, made["data"]


def joined(described: Mapping[str, Any], data: bytes, path: str) -> dict[str, Any]:
    """The parameters that `split` put into the file."""
    sha256, plain = described["sha256"], described["plain"]
    return dict(load(described["kind"], plain, data, sha256=sha256, path=path))


def check_unchanged(data: bytes, sha256: str, path: str) -> None:
    """Raise `JobError` where a file is not the one whose digest was saved with it."""
    if digest(data) != sha256:
        raise JobError(
            f"the file {path!r} was changed after it was saved.", "Restore it, or save it again."
        )


def digest(data: bytes) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(data).hexdigest()


def _plain(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    """JSON that stands for a value, and the tensors and modules that go with it."""
    import torch

    if isinstance(value, list | tuple):
        return {"list": [_plain(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]}
    if isinstance(value, torch.nn.Module):
        for part in value.modules():
            if not _is_torch(type(part)):
                raise NoPickleError(f"{type(part).__qualname__} is no class of PyTorch")
        tensors[name] = value
        return {"module": name}
    if callable(value):
        address = f"{getattr(value, '__module__', '')}:{getattr(value, '__name__', '')}"
        if not address.startswith("torch.") or _find(address) is not value:
            said = getattr(value, "__qualname__", type(value).__qualname__)
            raise NoPickleError(f"{said} is no function of PyTorch")
        return {"function": address}
    try:
        json.dumps(value)
    except TypeError as error:
        raise NoPickleError(f"{type(value).__qualname__} is no plain value") from error
    return {"value": value}


def _optimizer(value: Any, name: str, tensors: dict[str, Any], model: Any) -> dict[str, Any]:
    """As `_plain`, with the places that its parameters have among the model's."""
    if isinstance(value, SavedOptimizer):
        value = value.of(model)
    kind = type(value)
    if not _is_torch(kind):
        raise NoPickleError(f"{kind.__qualname__} is no class of PyTorch")
    own = {id(p): place for place, p in enumerate(model.parameters() if model is not None else ())}
    given = [id(p) for group in value.param_groups for p in group["params"]]
    if set(given) <= set(own):
        places = [own[p] for p in given]
    elif len(given) == len(own):
        places = list(range(len(own)))  # as `fit` takes one that was made of another model's
    else:
        raise NoPickleError(f"{kind.__qualname__} is of other parameters than the model")
    tensors[name] = value.state_dict()
    return {"optimizer": f"{kind.__module__}:{kind.__name__}", "state": name, "places": places}


def _value(plain: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    if "list" in plain:
        return [_value(item, tensors) for item in plain["list"]]
    if "module" in plain:
        return tensors[plain["module"]]
    if "optimizer" in plain:
        return SavedOptimizer(plain["optimizer"], tensors[plain["state"]], plain["places"])
    if "function" in plain:
        return _find(plain["function"])
    return plain["value"]


class SavedOptimizer:
    """An optimizer without its model's parameters.

    Args:
        address: module and name of its class.
        state: what its `state_dict` gave.
        places: which of the model's parameters its own are, in its order.
    """

    def __init__(self, address: str, state: Mapping[str, Any], places: Sequence[int]) -> None:
        self._address = address
        self._state = state
        self._places = places

    @property
    def kind(self) -> str:
        """The name of its class."""
        return self._address.partition(":")[2]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Its settings, as an optimizer has them."""
        return list(self._state["param_groups"])

    def of(self, model: Any) -> Any:
        """The optimizer, of a model's parameters."""
        parameters = list(model.parameters())
        groups = [
            {**group, "params": [parameters[self._places[i]] for i in group["params"]]}
            for group in self._state["param_groups"]
        ]
        made = _find(self._address)(groups, lr=1.0)
        made.load_state_dict(self._state)
        return made


def optimizer_of(model: Any, optimizer: Any) -> Any:
    """An optimizer; made of the model's parameters where it was loaded."""
    return optimizer.of(model) if isinstance(optimizer, SavedOptimizer) else optimizer


def _find(address: str) -> Any:
    module, _, name = address.partition(":")
    if not module.startswith("torch."):
        raise JobError(f"{address!r} is no part of PyTorch.", "Restore the saved file.")
    return getattr(importlib.import_module(module), name, None)


def _is_torch(kind: type) -> bool:
    return kind.__module__.startswith(("torch.nn.", "torch.optim."))


def _save(tensors: Mapping[str, Any]) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(dict(tensors), buffer)
    return buffer.getvalue()


def _restore(data: bytes) -> dict[str, Any]:
    """What `_save` wrote: tensors, and modules of PyTorch's own classes and no other."""
    import torch

    names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))
    allowed: list[Any] = []
    for name in names:
        module, _, kind = name.rpartition(".")
        found = getattr(importlib.import_module(module), kind, None) if _layer(module) else None
        if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
            raise JobError(
                f"the saved model holds {name}, which is no layer of PyTorch.", "Save it again."
            )
        allowed.append(found)
    with torch.serialization.safe_globals(allowed):
        return dict(torch.load(io.BytesIO(data), weights_only=True, map_location="cpu"))


def _layer(module: str) -> bool:
    return module.startswith("torch.nn.modules.")
