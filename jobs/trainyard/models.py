"""A stored model: `weights.safetensors` and the `meta.json` from which its network is rebuilt.

Nothing is unpickled: the weights are plain tensors whose digest meta.json holds, and the network is
made by its import path and parameters. Weights are written first, meta.json last.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from trainyard import networks, registry, store
from trainyard.dataset import CLASSIFICATION, Dataset, Fitted
from trainyard.errors import JobError, nearest
from trainyard.layout import join

WEIGHTS = "weights.safetensors"
META = "meta.json"


@dataclass(frozen=True, kw_only=True)
class ModelMeta:
    """What meta.json says.

    Attributes:
        network: import path of the network's class, as module:Class.
        network_params: keyword arguments of the class.
        input_shape: shape of one row's features, as the network takes them.
        task: `classification` or `regression`.
        features: the source's feature columns, in order.
        key: the source's key column, if it had one.
        label: the source's label column.
        classes: the label values; the network gives one score for each; none for a regression.
        width: numbers in a row's features.
        preprocessing: what makes a row's features of the source's columns, if anything; its files
            lie beside the weights.
        weights_sha256: digest of the weights' file; `save_model` fills it in.
        dataset_fingerprint: the dataset on which the model was trained.
        settings: the training's settings.
        versions: versions of torch, horovod and trainyard.
    """

    network: str
    network_params: dict[str, Any]
    input_shape: tuple[int, ...]
    task: str = CLASSIFICATION
    features: tuple[str, ...]
    key: str | None
    label: str
    classes: tuple[str | int, ...]
    width: int
    preprocessing: Fitted | None = None
    weights_sha256: str = ""
    dataset_fingerprint: str
    settings: dict[str, Any]
    versions: dict[str, str]

    @property
    def outputs(self) -> int:
        """How many numbers the network gives for a row: a score for each class, or the value."""
        return len(self.classes) if self.task == CLASSIFICATION else 1

    def check_dataset(self, dataset: Dataset) -> None:
        """Raise `JobError` when a dataset's rows are not what the model was trained on."""
        same = ["task", "features", "label", "classes"]
        if self.preprocessing is None and dataset.preprocessing is None:
            same.append("width")
        for name in same:
            mine, theirs = getattr(self, name), getattr(dataset, name)
            if mine != theirs:
                raise JobError(
                    f"the model wants {name} {_short(mine)}, but the dataset "
                    f"{dataset.directory!r} has {_short(theirs)}.{_difference(mine, theirs)}",
                    "Score a dataset prepared like the one that the model was trained on.",
                )


@dataclass(frozen=True, kw_only=True)
class StoredModel:
    """A model as it is stored; small enough to travel to every worker.

    Attributes:
        directory: where it was read from.
        weights: content of the weights' file.
    """

    directory: str
    meta: ModelMeta
    weights: bytes

    @classmethod
    def read(cls, directory: str) -> Self:
        """Read a model directory.

        Raises:
            JobError: it is not there, or does not match its own meta.json.
        """
        stored = cls(
            directory=directory, meta=_read_meta(directory), weights=_read_weights(directory)
        )
        return stored._checked(directory)

    def _checked(self, directory: str) -> Self:
        if hashlib.sha256(self.weights).hexdigest() != self.meta.weights_sha256:
            raise JobError(
                f"{join(directory, WEIGHTS)!r} does not have the sha256 that {META} holds: it is "
                "damaged, or not the file that was saved.",
                "Restore the model directory, or train again.",
            )
        return self

    def build(self) -> nn.Module:
        """The network with its weights, in eval mode.

        Raises:
            JobError: the network cannot be made, or has other weights than the stored ones.
        """
        network = networks.build(self.meta.network, self.meta.network_params)
        try:
            network.load_state_dict(load(self.weights))
        except (RuntimeError, SafetensorError) as error:
            raise JobError(
                f"the stored weights do not fit {self.meta.network}: {_line(error)}",
                "Use the network's class as it was when the model was trained.",
            ) from error
        return network.eval()


def save_model(directory: str, state_dict: Mapping[str, Any], meta: ModelMeta) -> ModelMeta:
    """Write a model directory, and return `meta` with the digest of its weights.

    Raises:
        JobError: the state holds something that is no tensor, or a number that is not finite.
        TransientError: the store is full or cannot be written.
    """
    weights = save({name: _plain(name, value) for name, value in state_dict.items()})
    meta = dataclasses.replace(meta, weights_sha256=hashlib.sha256(weights).hexdigest())
    with store.writing(f"the model {directory!r}"):
        store.write_bytes(join(directory, WEIGHTS), weights)
        store.write_json(join(directory, META), dataclasses.asdict(meta))
    return meta


def load_model(directory: str) -> tuple[nn.Module, ModelMeta]:
    """The network in eval mode and what is known of it; see `StoredModel` for the errors."""
    stored = StoredModel.read(directory)
    return stored.build(), stored.meta


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """Which model it is.

    Attributes:
        uri: a directory, or models:/NAME/VERSION.
        name: its registered name, if it has one.
        version: its registered version.
    """

    uri: str
    name: str | None = None
    version: str | None = None


def resolve_model(uri: str) -> tuple[str, ModelIdentity]:
    """The directory of a model, and its identity with the alias resolved.

    Args:
        uri: a directory, models:/NAME/VERSION or models:/NAME@ALIAS.

    Raises:
        JobError: the registry has no such model.
    """
    if not registry.is_model_uri(uri):
        return uri, ModelIdentity(uri=uri)
    found = registry.resolve(uri)
    directory = registry.download(found.name, found.version)
    return directory, ModelIdentity(uri=found.uri, name=found.name, version=found.version)


def _plain(name: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise JobError(
            f"the network's state {name!r} is a {type(value).__name__}, not a tensor.",
            "Keep only parameters and buffers in the network's state.",
        )
    if value.is_floating_point() and not torch.isfinite(value).all():
        raise JobError(
            f"the network's state {name!r} holds NaN or infinite numbers.",
            "Lower the learning rate, or check the features.",
        )
    # Clones, since safetensors refuses tensors that share memory, such as tied weights.
    return value.detach().cpu().contiguous().clone()


def _read_meta(directory: str) -> ModelMeta:
    uri = join(directory, META)
    missing = JobError(
        f"setting 'model' is {directory!r}: there is no {META}.",
        "Give the model directory or models:/ URI that a training's result names.",
    )
    with store.reading(uri, "a model", missing=missing, fix="Train the model again."):
        values: dict[str, Any] = store.read_json(uri)
        tuples: dict[str, Any] = {
            name: tuple(values.pop(name)) for name in ("input_shape", "features", "classes")
        }
        # A model from before preprocessing was fitted has none; it may be the champion still.
        fitted = Fitted.from_mapping(values.pop("preprocessing", None))
        return ModelMeta(**tuples, **values, preprocessing=fitted)


def _read_weights(directory: str) -> bytes:
    uri = join(directory, WEIGHTS)
    try:
        return store.read_bytes(uri)
    except FileNotFoundError as error:
        raise JobError(
            f"the model {directory!r} has no {WEIGHTS}.", "Restore the directory, or train again."
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _difference(mine: Any, theirs: Any) -> str:
    """Where two sequences part, since a long one is cut where it is shown."""
    if not (isinstance(mine, tuple) and isinstance(theirs, tuple)):
        return ""
    if sorted(map(str, mine)) == sorted(map(str, theirs)):
        at = next(
            (i for i, pair in enumerate(zip(mine, theirs, strict=True)) if len(set(pair)) > 1)
        )
        if str(mine[at]) == str(theirs[at]):
            kinds = [type(values[at]).__name__ for values in (mine, theirs)]
            return f" {mine[at]!r} is a {kinds[0]} in the model and a {kinds[1]} in the dataset."
        return f" The order differs: number {at + 1} is {mine[at]!r}, not {theirs[at]!r}."
    missing = [value for value in mine if value not in theirs]
    if not missing:
        return f" {next(value for value in theirs if value not in mine)!r} is new."
    return f" {missing[0]!r} is missing. {nearest(str(missing[0]), map(str, theirs))}"


def _short(value: Any) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else text[:77] + "..."
