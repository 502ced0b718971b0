"""Areas under curves over the rows of all workers, as XGBoost has them for the rows of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost as xgb
from xgboost import collective

from trainyard.boosters import GROWING
from trainyard.xgboost.history import figure_of
from trainyard.xgboost.params import Goal
from trainyard.xgboost.rows import Share

Floats = npt.NDArray[np.float64]


def roc_auc(scores: npt.NDArray[Any], labels: npt.NDArray[Any], weights: Floats) -> float:
    """Area under the ROC curve; NaN where a class has no weight.

    Args:
        scores: of each row [rows], on any scale.
        labels: 0 or 1 [rows].
        weights: of each row [rows].
    """
    positive, negative = _steps(scores, labels, weights)
    both = positive.sum() * negative.sum()
    above = np.cumsum(positive) - positive / 2  # a tie is half a success
    return float((above * negative).sum() / both) if both else float("nan")


def pr_auc(scores: npt.NDArray[Any], labels: npt.NDArray[Any], weights: Floats) -> float:
    """Area under the precision-recall curve; arguments as above.

    Between two points false positives rise in proportion to true ones (Davis and Goadrich, 2006).
    """
    positive, negative = _steps(scores, labels, weights)
    total = positive.sum()
    if not total or not negative.sum():
        return float("nan")
    recall, false = np.cumsum(positive) / total, np.cumsum(negative) / total
    before, false_before = recall - positive / total, false - negative / total
    moved = positive > 0
    slope = np.divide(false - false_before, recall - before, out=np.zeros_like(recall), where=moved)
    a, b = 1 + slope, false_before - slope * before
    gained = recall - before
    with np.errstate(divide="ignore", invalid="ignore"):
        bent = (gained - b / a * (np.log(a * recall + b) - np.log(a * before + b))) / a
    area = np.where(moved, np.where(np.abs(b) > 1e-15, bent, gained / a), 0.0)
    return float(area.sum())


def _steps(
    scores: npt.NDArray[Any], labels: npt.NDArray[Any], weights: Floats
) -> tuple[Floats, Floats]:
    """The weight of either class at each distinct score, the highest score first."""
    _, place = np.unique(-scores, return_inverse=True)
    count = int(place.max()) + 1 if len(place) else 0
    positive = np.bincount(place, weights * labels, count).astype(np.float64)
    negative = np.bincount(place, weights * (1 - labels), count).astype(np.float64)
    return positive, negative


AREAS = {"auc": roc_auc, "aucpr": pr_auc}
"""By XGBoost's name of each."""


class Areas:
    """Areas under curves of the validation rows, over all workers.

    XGBoost would give the mean of the areas that each worker finds in its own rows, by which the
    best round depends on how rows lie.
    """

    def __init__(self, share: Share, matrix: xgb.QuantileDMatrix | None, goal: Goal) -> None:
        self._names = [metric for metric in goal.metrics if metric in GROWING]
        self._share = share
        self._matrix = matrix
        if self._names and matrix is not None:
            weights = matrix.get_weight()
            own = np.ones(share.rows) if not len(weights) else weights
            self._labels, self._weights = self._all(matrix.get_label()), self._all(own)

    def figures(self, trees: xgb.Booster) -> dict[str, float]:
        """The areas after a round, by the name that is reported."""
        if not self._names or self._matrix is None:
            return {}
        scores = self._all(trees.predict(self._matrix, output_margin=True))
        return {
            figure_of("validation", name): AREAS[name](scores, self._labels, self._weights)
            for name in self._names
        }

    def _all(self, own: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The values of all workers' rows, in order."""
        first, end = self._share.bounds
        whole = np.zeros(self._share.dataset.rows(self._share.split))
        whole[first:end] = own
        return collective.allreduce(whole, collective.Op.SUM) if self._share.size > 1 else whole
