from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from trainyard import networks
from trainyard.errors import SettingError
from trainyard.networks.mnist import ConvNet

CONVNET = "trainyard.networks.mnist:ConvNet"


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `own_network` of the user's, on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_network", raising=False)
    return tmp_path / "own_network.py"


def test_builds_from_import_path_and_parameters() -> None:
    network = networks.build(CONVNET, {"classes": 7, "dropout": 0.25})
    assert isinstance(network, ConvNet)
    assert network(torch.zeros(3, 1, 28, 28)).shape == (3, 7)


def test_convnet_normalises_raw_pixels_itself() -> None:
    torch.manual_seed(0)
    raw = networks.build(CONVNET, {}).eval()
    scaled = networks.build(CONVNET, {"scale": 1.0}).eval()
    scaled.load_state_dict(raw.state_dict())
    pixels = torch.randint(0, 256, (4, 1, 28, 28)).float()
    assert torch.allclose(raw(pixels), scaled(pixels / 255), atol=1e-5)
    assert not torch.allclose(raw(pixels), scaled(pixels))


@pytest.mark.parametrize(
    ("network", "params", "cause", "fix"),
    [
        ("no_such_package.net:Net", {}, "no module 'no_such_package'", "--py-files"),
        ("trainyard.networks.mnist:ConvNt", {}, "has no 'ConvNt'", "Did you mean 'ConvNet'?"),
        ("math:sqrt", {}, "not a torch.nn.Module", "derives from it"),
        (CONVNET, {"dropoot": 0.1}, "takes no argument 'dropoot'", "Did you mean 'dropout'?"),
        (CONVNET, {"dropout": 2.0}, "ValueError: dropout probability", "Change them"),
        ("torch.nn:Linear", {"in_features": 3}, "missing 1 required", "Change them"),
    ],
)
def test_refuses_what_it_cannot_build(
    network: str, params: dict[str, object], cause: str, fix: str
) -> None:
    with pytest.raises(SettingError) as caught:
        networks.build(network, params)
    assert cause in caught.value.cause
    assert fix in caught.value.fix


def test_tells_a_missing_module_from_one_that_fails(own_module: Path) -> None:
    own_module.write_text("import no_such_dependency\n")
    with pytest.raises(SettingError) as caught:
        networks.build("own_network:Net", {})
    assert "importing 'own_network' failed with ModuleNotFoundError" in caught.value.cause
    assert "no_such_dependency" in caught.value.cause


def test_fits_the_dataset() -> None:
    network = networks.build(CONVNET, {})
    networks.check_fit(network, CONVNET, input_shape=(1, 28, 28), width=784, outputs=10)
    assert network.training


@pytest.mark.parametrize(
    ("input_shape", "width", "classes", "setting", "cause"),
    [
        ((1, 28, 28), 64, 10, "input_shape", "1 x 28 x 28 = 784, but a row of the dataset has 64"),
        ((1, 8, 8), 64, 10, "network", "cannot take rows of shape [1, 8, 8]"),
        ((1, 28, 28), 784, 3, "network", "gives [2, 10], but the dataset has 3 classes"),
    ],
)
def test_refuses_a_network_that_does_not_fit(
    input_shape: tuple[int, ...], width: int, classes: int, setting: str, cause: str
) -> None:
    network = networks.build(CONVNET, {})
    with pytest.raises(SettingError) as caught:
        networks.check_fit(network, CONVNET, input_shape=input_shape, width=width, outputs=classes)
    assert caught.value.name == setting
    assert cause in caught.value.cause


def test_refuses_parameters_of_another_type() -> None:
    network = networks.build("torch.nn:Linear", {"in_features": 4, "out_features": 2}).double()
    with pytest.raises(SettingError, match=r"'weight' is torch.float64"):
        networks.check_fit(network, "torch.nn:Linear", input_shape=(4,), width=4, outputs=2)
