"""A small network for rows of numbers."""

from __future__ import annotations

from torch import Tensor, nn


class TabularNet(nn.Module):
    """Scores the classes of rows of numbers.

    Args:
        features: numbers in a row.
        classes: number of classes.
        hidden: width of both hidden layers.
    """

    def __init__(self, features: int, classes: int = 2, hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Logits (rows, classes) of numbers (rows, features)."""
        scores: Tensor = self.layers(rows)
        return scores
