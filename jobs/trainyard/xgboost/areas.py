"""Areas under curves over the rows of all workers, as XGBoost has them for the rows of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

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
