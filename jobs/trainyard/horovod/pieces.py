"""A rank's rows as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainyard.pieces import Piece, PieceReader


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Some rows.

    Attributes:
        features: float32 (rows, width).
        labels: (rows,) as int64, an index into the classes; for a regression float32, the value.
        weights: float32 (rows,), if the dataset has weights.
    """

    features: Tensor
    labels: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Rows:
        """The rows at an index (rows,) of int64."""
        return self._each(lambda tensor: tensor[index])

    def to(self, device: torch.device) -> Rows:
        """The rows on a device."""
        return self._each(lambda tensor: tensor.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Rows:
        weights = None if self.weights is None else change(self.weights)
        return Rows(features=change(self.features), labels=change(self.labels), weights=weights)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        features=torch.cat([part.features for part in parts]),
        labels=torch.cat([part.labels for part in parts]),
        weights=None
        if parts[0].weights is None
        else torch.cat([part.weights for part in parts if part.weights is not None]),
    )


class Reader(PieceReader):
    """A `PieceReader` that gives tensors."""

    def read(self, parts: Sequence[Piece]) -> Rows:
        """The rows of all parts, in order."""
        found = self.arrays(parts)
        weights = None if found.weights is None else torch.from_numpy(found.weights)
        return Rows(
            features=torch.from_numpy(found.features),
            labels=torch.from_numpy(found.labels),
            weights=weights,
        )
