"""A worker's rows: read in parts from the dataset's files into one quantised copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost as xgb

from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.pieces import Piece, PieceReader, bounds, pieces

_BATCH_BYTES = 16 * 1024**2
"""Of features that are read at a time, beside the quantised copy."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """The rows of a split that belong to a worker.

    Attributes:
        dataset: the prepared dataset.
        split: its part.
        rank: the worker.
        size: how many there are.
        class_weights: how much a row of each class counts, float32 [classes]; all the same if None.
    """

    dataset: Dataset
    split: str
    rank: int
    size: int
    class_weights: npt.NDArray[np.float32] | None = None

    @property
    def pieces(self) -> list[Piece]:
        """The parts of row groups that hold them."""
        return pieces(self.dataset, self.split, *self.bounds)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first of them in the split, and the one past the last."""
        return bounds(self.dataset.rows(self.split), self.rank, self.size)

    @property
    def rows(self) -> int:
        """How many they are."""
        first, end = self.bounds
        return end - first

    def labels(self) -> npt.NDArray[Any]:
        """Their labels; reads nothing else."""
        return PieceReader(self.dataset).labels(self.pieces)

    def matrix(
        self, *, max_bin: int, missing: float | None, like: xgb.QuantileDMatrix | None = None
    ) -> xgb.QuantileDMatrix:
        """Quantised features with labels, weights and base margins; made on all workers at once.

        Args:
            max_bin: bins of a feature.
            missing: number that stands for a missing one, beside NaN.
            like: the training rows, whose bins these rows get.
        """
        return xgb.QuantileDMatrix(
            _Parts(self),
            max_bin=max_bin,
            missing=np.nan if missing is None else missing,
            nthread=1,
            ref=like,
            enable_categorical=True,
        )


def feature_types(dataset: Dataset) -> list[str] | None:
    """`c` for each feature that is a category and `q` for the others; None where none is."""
    fitted = dataset.preprocessing
    if fitted is None or not fitted.indexed:
        return None
    categories = len(fitted.indexed)
    return ["q"] * (dataset.width - categories) + ["c"] * categories


class _Parts(xgb.DataIter):
    """Gives XGBoost a share in parts; it asks for all of them several times."""

    def __init__(self, share: Share) -> None:
        super().__init__(release_data=True)
        self._share = share
        self._reader = PieceReader(share.dataset)
        self._types = feature_types(share.dataset)
        self._parts = _parts(share.pieces, share.dataset.width)
        self._next = 0

    def reset(self) -> None:
        self._next = 0

    def next(self, input_data: Callable[..., Any]) -> bool:
        if self._next == len(self._parts):
            return False
        found = self._reader.arrays(self._parts[self._next])
        self._next += 1
        weights = found.weights
        if self._share.class_weights is not None:
            of_class = self._share.class_weights[found.labels]
            with np.errstate(over="ignore"):
                weights = of_class if weights is None else weights * of_class
            if not np.isfinite(weights).all():
                raise JobError(
                    f"column {self._share.dataset.weight!r} times class_weights is more than "
                    "32-bit floats hold.",
                    "Use smaller weights: only their ratios count.",
                )
        margins = found.margins
        input_data(
            data=found.features,
            label=found.labels.astype(np.float32),
            weight=weights,
            base_margin=margins,
            feature_types=self._types,
        )
        return True


def _parts(found: Sequence[Piece], width: int) -> list[list[Piece]]:
    """Row groups by the parts in which they are read; one without rows where there are none."""
    most = max(1, _BATCH_BYTES // (4 * max(width, 1)))
    parts: list[list[Piece]] = [[]]
    rows = 0
    for piece in found:
        if parts[-1] and rows + piece.rows > most:
            parts.append([])
            rows = 0
        parts[-1].append(piece)
        rows += piece.rows
    return parts
