"""A stored model: its weights, and the `meta.json` from which it is rebuilt.

A network's weights are `weights.safetensors`, boosted trees are XGBoost's own `model.ubj`. Nothing
is unpickled: meta.json holds the digest of the file, and a network is made by its import path and
parameters. Weights are written first, meta.json last.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from trainyard import registry, store
from trainyard.dataset import CLASSIFICATION, REGRESSION, Dataset, Fitted
from trainyard.errors import JobError, nearest
from trainyard.images.pixels import Pixels
from trainyard.layout import join

if TYPE_CHECKING:
    from torch import nn
    from xgboost import Booster

TORCH = "torch"
XGBOOST = "xgboost"

WEIGHTS = "weights.safetensors"
BOOSTER = "model.ubj"
META = "meta.json"

_FILES = {TORCH: WEIGHTS, XGBOOST: BOOSTER}


@dataclass(frozen=True, kw_only=True)
class ModelMeta:
    """What meta.json says.

    Attributes:
        engine: what it is made of: `torch` for a network, `xgboost` for boosted trees.
        network: import path of the network's class, as module:Class.
        network_params: keyword arguments of the class.
        input_shape: shape of one row's features, as the network takes them.
        pixels: how a network of images takes one; the rows of other models are numbers.
        missing: number that stands for a missing one for boosted trees, beside NaN.
        base_margin: the source's column of base margins, which the trees must be given, if any.
        task: `classification` or `regression`.
        features: the source's feature columns, in order.
        key: the source's key column, if it had one.
        label: the source's label column.
        classes: the label values; the model gives one score for each; none for a regression.
        width: numbers in a row's features.
        preprocessing: what makes a row's features of the source's columns, if anything; its files
            lie beside the weights.
        weights_sha256: digest of the weights' file; `save_model` fills it in.
        dataset_fingerprint: the dataset on which the model was trained.
        settings: the training's settings.
        versions: versions of the engine and of trainyard.
    """

    engine: str = TORCH
    network: str = ""
    network_params: dict[str, Any] = dataclasses.field(default_factory=dict)
    input_shape: tuple[int, ...] = ()
    pixels: Pixels | None = None
    missing: float | None = None
    base_margin: str | None = None
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
        """How many numbers the model gives for a row: a score for each class, or the value."""
        return len(self.classes) if self.task == CLASSIFICATION else 1

    @property
    def margins(self) -> int:
        """How many base margins a row has, where there are any: one, or one for each class."""
        return len(self.classes) if len(self.classes) > 2 else 1

    def check_dataset(self, dataset: Dataset) -> None:
        """Raise `JobError` when a dataset's rows are not what the model was trained on."""
        same = ["task", "features", "label", "classes"]
        if self.preprocessing is None and dataset.preprocessing is None:
            same.append("width")
        if self.base_margin is not None:
            same.append("base_margin")
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
        meta = _read_meta(directory)
        name = _FILES[meta.engine]
        weights = _read_weights(directory, name)
        if hashlib.sha256(weights).hexdigest() != meta.weights_sha256:
            raise JobError(
                f"{join(directory, name)!r} does not have the sha256 that {META} holds: it is "
                "damaged, or not the file that was saved.",
                "Restore the model directory, or train again.",
            )
        return cls(directory=directory, meta=meta, weights=weights)

    def build(self) -> nn.Module:
        """The network with its weights, in eval mode; see `weights.build` for the errors."""
        from trainyard import weights

        return weights.build(self.meta.network, self.meta.network_params, self.weights)

    def booster(self) -> Booster:
        """The boosted trees, which use one thread."""
        from trainyard.xgboost.booster import from_bytes

        return from_bytes(self.weights)


def save_model(directory: str, state_dict: Mapping[str, Any], meta: ModelMeta) -> ModelMeta:
    """Write a network's model directory, and return `meta` with the digest of its weights.

    Raises:
        JobError: the state holds something that is no tensor, or a number that is not finite.
        TransientError: the store is full or cannot be written.
    """
    from trainyard import weights

    return save_bytes(directory, weights.to_bytes(state_dict), meta)


def save_bytes(directory: str, weights: bytes, meta: ModelMeta) -> ModelMeta:
    """Write a model directory of any engine, and return `meta` with the digest of its weights.

    Args:
        directory: where.
        weights: content of the engine's file.
        meta: what else is known.
    """
    meta = dataclasses.replace(meta, weights_sha256=hashlib.sha256(weights).hexdigest())
    with store.writing(f"the model {directory!r}"):
        store.write_bytes(join(directory, _FILES[meta.engine]), weights)
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
        uri: a directory, models:/NAME/VERSION, models:/NAME@ALIAS, or `package:NAME`.

    Raises:
        JobError: the registry has no such model.
    """
    from trainyard import packaged

    if packaged.is_packaged(uri):
        directory, version = packaged.unpack(uri)
        name = uri.removeprefix(packaged.SCHEME)
        return directory, ModelIdentity(uri=uri, name=name, version=version)
    if not registry.is_model_uri(uri):
        return uri, ModelIdentity(uri=uri)
    found = registry.resolve(uri)
    directory = registry.download(found.name, found.version)
    return directory, ModelIdentity(uri=found.uri, name=found.name, version=found.version)


def _read_meta(directory: str) -> ModelMeta:
    uri = join(directory, META)
    missing = JobError(
        f"setting 'model' is {directory!r}: there is no {META}.",
        "Give the model directory or models:/ URI that a training's result names.",
    )
    with store.reading(uri, "a model", missing=missing, fix="Correct it, or train again."):
        values: dict[str, Any] = store.read_json(uri)
        if not isinstance(values, dict):
            raise TypeError(f"it holds a {type(values).__name__}")
        tuples: dict[str, Any] = {
            name: tuple(values.pop(name)) for name in ("input_shape", "features", "classes")
        }
        # A model from before preprocessing was fitted has none; it may be the champion still.
        fitted = Fitted.from_mapping(values.pop("preprocessing", None))
        pixels = Pixels.from_mapping(values.pop("pixels", None))
        meta = ModelMeta(**tuples, **values, preprocessing=fitted, pixels=pixels)
        if meta.task not in (CLASSIFICATION, REGRESSION):
            raise ValueError(f"there is no task {meta.task!r}")
        if meta.missing is not None and type(meta.missing) not in (int, float):
            raise ValueError(f"missing is a number, not {meta.missing!r}")
        if meta.base_margin is not None and not isinstance(meta.base_margin, str):
            raise ValueError(f"base_margin is a column's name, not {meta.base_margin!r}")
        if meta.engine not in _FILES:
            raise ValueError(f"there is no engine {meta.engine!r}")
        if pixels is not None and (len(meta.input_shape), meta.input_shape[:1]) != (3, (3,)):
            raise ValueError(f"pixels are of shape [3, height, width], not {meta.input_shape}")
        return meta


def _read_weights(directory: str, name: str) -> bytes:
    uri = join(directory, name)
    try:
        return store.read_bytes(uri)
    except FileNotFoundError as error:
        raise JobError(
            f"the model {directory!r} has no {name}.", "Restore the directory, or train again."
        ) from error


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
