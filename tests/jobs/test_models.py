"""A stored model comes back as it was, and what is not the stored model is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_datasets import write_dataset
from tiny_models import Linear, meta_for, store_linear

from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.models import META, WEIGHTS, StoredModel, load_model, resolve_model, save_model
from trainyard.scoring import Scorer, check_model

WEIGHT = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    rows = np.array([[1, 0], [0, 1], [-1, -1]], np.float32)
    return write_dataset(tmp_path / "data", {"test": (rows, np.arange(3))}, classes=3)


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_model_comes_back_as_it_was(tmp_path: Path, dataset: Dataset, place: str) -> None:
    directory = str(tmp_path / "m") if place == "local" else f"memory://{uuid.uuid4().hex}/m"
    network = Linear()
    meta = save_model(directory, network.state_dict(), meta_for(dataset))
    loaded, found = load_model(directory)
    assert found == meta
    assert len(found.weights_sha256) == 64
    assert not loaded.training
    for name, value in network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_a_model_from_before_fitted_preprocessing_is_read(tmp_path: Path, dataset: Dataset) -> None:
    directory = store_linear(tmp_path / "m", dataset, WEIGHT)
    described = json.loads(Path(directory, META).read_text())
    del described["preprocessing"]
    Path(directory, META).write_text(json.dumps(described))
    assert StoredModel.read(directory).meta.preprocessing is None


def test_tied_weights_are_stored(tmp_path: Path, dataset: Dataset) -> None:
    shared = torch.zeros(3)
    state = {"layer.weight": WEIGHT, "layer.bias": shared, "layer.copy": shared}
    save_model(str(tmp_path / "m"), state, meta_for(dataset))
    assert StoredModel.read(str(tmp_path / "m")).meta.width == 2


def test_scores_are_those_of_eval_mode(tmp_path: Path, dataset: Dataset) -> None:
    model = StoredModel.read(store_linear(tmp_path / "m", dataset, WEIGHT))
    features = np.array([[2.0, 1.0], [0.0, 0.0], [-3.0, 2.0]], np.float32)
    expected = torch.tensor(features @ WEIGHT.numpy().T).double().log_softmax(1).numpy()
    for batch_size in (1, 2, 3, 100):
        assert np.allclose(
            Scorer(model, batch_size).log_probabilities(features), expected, atol=1e-6
        )
    assert Scorer(model, 8).log_probabilities(features[:0]).shape == (0, 3)


class TestRefused:
    def test_no_model(self, tmp_path: Path) -> None:
        with pytest.raises(JobError, match=r"setting 'model' is '.*': there is no meta.json"):
            load_model(str(tmp_path))

    def test_no_weights(self, tmp_path: Path, dataset: Dataset) -> None:
        store_linear(tmp_path, dataset, WEIGHT)
        (tmp_path / WEIGHTS).unlink()
        with pytest.raises(JobError, match=r"has no weights.safetensors"):
            load_model(str(tmp_path))

    def test_one_changed_byte(self, tmp_path: Path, dataset: Dataset) -> None:
        store_linear(tmp_path, dataset, WEIGHT)
        data = bytearray((tmp_path / WEIGHTS).read_bytes())
        data[-1] ^= 1
        (tmp_path / WEIGHTS).write_bytes(data)
        with pytest.raises(JobError, match="does not have the sha256"):
            load_model(str(tmp_path))

    def test_a_pickle_is_not_even_read(self, tmp_path: Path, dataset: Dataset) -> None:
        meta = json.loads((Path(store_linear(tmp_path, dataset, WEIGHT)) / META).read_text())
        planted = pickle.dumps(_Explodes())
        (tmp_path / WEIGHTS).write_bytes(planted)
        meta["weights_sha256"] = hashlib.sha256(planted).hexdigest()
        (tmp_path / META).write_text(json.dumps(meta))
        with pytest.raises(JobError, match="do not fit"):
            load_model(str(tmp_path))

    @pytest.mark.parametrize(
        "change", [{"extra": 1}, {"classes": None}, {"network": None, "width": ...}, []]
    )
    def test_a_meta_of_another_form(self, tmp_path: Path, dataset: Dataset, change: Any) -> None:
        store_linear(tmp_path, dataset, WEIGHT)
        meta = json.loads((tmp_path / META).read_text())
        meta = change if change == [] else {**meta, **change}
        if isinstance(meta, dict) and meta["width"] is ...:
            del meta["width"]
        (tmp_path / META).write_text(json.dumps(meta))
        with pytest.raises(JobError, match="does not describe a model"):
            load_model(str(tmp_path))

    @pytest.mark.parametrize(
        ("pixels", "shape", "problem"),
        [
            ({"crop": 0}, [3, 1, 1], "crop is 0"),
            ({"crop": "1"}, [3, 1, 1], "not supported between"),
            ({"mean": [0, 0]}, [3, 1, 1], r"mean is \[0, 0\]"),
            ({"std": [1, 0, 1]}, [3, 1, 1], "std holds a 0"),
            ({}, [3], "of shape"),
            ({}, [1, 1, 3], "of shape"),
        ],
    )
    def test_pixels_that_no_image_could_be_made_to(
        self, tmp_path: Path, dataset: Dataset, pixels: Any, shape: list[int], problem: str
    ) -> None:
        store_linear(tmp_path, dataset, WEIGHT)
        meta = json.loads((tmp_path / META).read_text())
        meta["pixels"] = {"crop": 1.0, "mean": [0, 0, 0], "std": [1, 1, 1], **pixels}
        (tmp_path / META).write_text(json.dumps({**meta, "input_shape": shape}))
        with pytest.raises(JobError, match=f"does not describe a model: .*{problem}"):
            StoredModel.read(str(tmp_path))

    def test_another_network(self, tmp_path: Path, dataset: Dataset) -> None:
        params = {"width": 2, "classes": 4}
        store_linear(tmp_path, dataset, WEIGHT, network_params=params)
        with pytest.raises(JobError, match="the stored weights do not fit tiny_models:Linear"):
            load_model(str(tmp_path))

    def test_a_network_that_is_gone(self, tmp_path: Path, dataset: Dataset) -> None:
        store_linear(tmp_path, dataset, WEIGHT, network="tiny_models:Liner")
        with pytest.raises(JobError, match="Did you mean 'Linear'"):
            load_model(str(tmp_path))

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_weights_that_are_not_finite(
        self, tmp_path: Path, dataset: Dataset, value: float
    ) -> None:
        with pytest.raises(JobError, match=r"'layer\.weight' holds NaN or infinite"):
            store_linear(tmp_path, dataset, torch.full((3, 2), value))
        assert not (tmp_path / META).exists()

    def test_a_state_that_is_no_tensor(self, tmp_path: Path, dataset: Dataset) -> None:
        with pytest.raises(JobError, match="'extra' is a dict, not a tensor"):
            save_model(str(tmp_path), {"extra": {}}, meta_for(dataset))

    def test_a_network_that_does_not_fit_its_classes(
        self, tmp_path: Path, dataset: Dataset
    ) -> None:
        directory = store_linear(tmp_path, dataset, WEIGHT, classes=(0, 1))
        with pytest.raises(JobError, match=r"it must give \[2, 2\]"):
            check_model(StoredModel.read(directory), "m")

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"width": 3}, "wants width 2, but the dataset '.*' has 3"),
            ({"features": ("b", "a")}, "wants features"),
            ({"classes": (0, 2, 1)}, r"wants classes \[0, 1, 2\], but .* has \[0, 2, 1\]"),
            ({"classes": ("0", "1", "2")}, "wants classes"),
            ({"label": "other"}, "wants label"),
        ],
    )
    def test_another_dataset(self, dataset: Dataset, change: dict[str, Any], problem: str) -> None:
        meta = meta_for(dataset)
        meta.check_dataset(dataset)
        with pytest.raises(JobError, match=problem):
            meta.check_dataset(dataclasses.replace(dataset, **change))


class _Explodes:
    def __reduce__(self) -> Any:
        return exec, ("raise AssertionError('a stored pickle was loaded')",)


def test_a_directory_is_its_own_identity(tmp_path: Path) -> None:
    directory, identity = resolve_model(str(tmp_path))
    assert (directory, identity.uri, identity.name, identity.version) == (
        str(tmp_path),
        str(tmp_path),
        None,
        None,
    )
