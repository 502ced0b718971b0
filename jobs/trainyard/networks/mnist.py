"""The network of the MNIST tutorials: two convolutions with dropout and two linear layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own idiom
from torch import Tensor, nn


class ConvNet(nn.Module):
    """Scores the classes of 28 x 28 grey images.

    It takes raw pixels and normalises them itself, so that serving cannot differ from training.

    Args:
        classes: number of classes.
        dropout: share of values dropped after the second convolution and the first linear layer.
        scale: the largest pixel value.
        mean: mean of the pixels, once divided by `scale`; MNIST's by default.
        deviation: standard deviation of the same.
    """

    def __init__(
        self,
        classes: int = 10,
        dropout: float = 0.5,
        scale: float = 255.0,
        mean: float = 0.1307,
        deviation: float = 0.3081,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.mean = mean
        self.deviation = deviation
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_dropout = nn.Dropout2d(dropout)
        self.linear1 = nn.Linear(320, 50)
        self.linear1_dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(50, classes)

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits (rows, classes) of pixels (rows, 1, 28, 28)."""
        x = (pixels / self.scale - self.mean) / self.deviation
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_dropout(self.conv2(x)), 2))
        x = torch.flatten(x, start_dim=1)
        x = self.linear1_dropout(F.relu(self.linear1(x)))
        return self.linear2(x)  # type: ignore[no-any-return]
