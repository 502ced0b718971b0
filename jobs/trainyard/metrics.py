"""Metrics of scored rows under any weights, so that a bootstrap can ask for them repeatedly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

CALIBRATION_BINS = 10

MOST_CURVES = 100
"""Classes up to which areas under curves are taken."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric and the interval in which it lies at the confidence asked for."""

    value: float
    low: float
    high: float


class Measured(Protocol):
    """Rows that one model scored."""

    @property
    def rows(self) -> int:
        """How many there are."""

    def at(self, positions: Integers) -> Self:
        """Some of the rows only."""

    def metrics(self, weights: Floats | None = None) -> dict[str, float]:
        """Each metric, with each row counted `weights` times; NaN where it is not defined."""


def wilson(right: int, rows: int, confidence: float) -> Metric:
    """A share with its Wilson score interval, which unlike a bootstrap is sound near 0 and 1."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = right / rows
    centre = share + z * z / (2 * rows)
    spread = z * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    scale = 1 + z * z / rows
    # At a share of 0 or 1 the bound is the share itself; rounding must not move it past.
    return Metric(
        value=share,
        low=min(share, max(0.0, (centre - spread) / scale)),
        high=max(share, min(1.0, (centre + spread) / scale)),
    )


def sums(groups: Integers, values: npt.NDArray[Any], count: int) -> Floats:
    """The sum of the values of each of `count` groups."""
    found: Floats = np.bincount(groups, values, count).astype(np.float64)
    return found


def macro(right: Floats, labelled: Floats, predicted: Floats) -> dict[str, float]:
    """Precision, recall and F1, each the plain mean over the classes that have rows.

    Args:
        right: rows of each class that were predicted as it.
        labelled: rows of each class.
        predicted: rows predicted as each class; one never predicted has precision 0.
    """
    present = labelled > 0
    figures = {
        "macro_precision": right / np.maximum(predicted, 1e-300),
        "macro_recall": right / np.maximum(labelled, 1e-300),
        "macro_f1": 2 * right / np.maximum(labelled + predicted, 1e-300),
    }
    return {name: float(values[present].mean()) for name, values in figures.items()}


class Classified:
    """Rows of known class, and the probabilities that a model gave.

    Args:
        labels: class indices [rows].
        probabilities: [rows, classes].
        losses: minus the logarithm of the probability given to the label [rows].
    """

    def __init__(self, labels: Integers, probabilities: Floats, losses: Floats) -> None:
        self.labels = labels
        self.probabilities = probabilities
        self._losses = losses
        self._classes = probabilities.shape[1]
        self._predictions = probabilities.argmax(axis=1)
        self._right = (self._predictions == labels).astype(np.float64)
        self.is_binary = self._classes == 2
        # Of two classes the second is the positive one.
        several = range(self._classes) if self._classes <= MOST_CURVES else []
        curves = [1] if self.is_binary else several
        self.curves = {c: Curve(probabilities[:, c], labels == c) for c in curves}
        self._confidence = probabilities[:, 1] if self.is_binary else probabilities.max(axis=1)
        self._hits = (labels == 1).astype(np.float64) if self.is_binary else self._right
        self._bins = np.minimum(
            (self._confidence * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1
        )
        self._squares = self._brier()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.labels)

    def at(self, positions: Integers) -> Self:
        """Some of the rows only."""
        return type(self)(
            self.labels[positions], self.probabilities[positions], self._losses[positions]
        )

    def metrics(self, weights: Floats | None = None) -> dict[str, float]:
        """Each metric, with each row counted `weights` times.

        ROC and precision-recall areas of more than two classes are means of one class against the
        rest, over the classes for which both sides have rows.
        """
        w = np.ones(self.rows) if weights is None else weights
        total = w.sum()
        right, labelled, predicted = (
            sums(classes, each, self._classes)
            for classes, each in (
                (self.labels, w * self._right),
                (self.labels, w),
                (self._predictions, w),
            )
        )
        areas = [curve.areas(w) for curve in self.curves.values()]
        defined = [pair for pair in areas if not math.isnan(pair[0])] or [(math.nan, math.nan)]
        roc, precision_recall = np.mean(defined, axis=0)
        bins = self.calibration(w)
        figures = {
            "accuracy": float(right.sum() / total),
            **macro(right, labelled, predicted),
            "log_loss": float((w * self._losses).sum() / total),
            "brier": float((w * self._squares).sum() / total),
            "calibration_error": float(
                (bins.rows * np.abs(bins.confidence - bins.share)).sum() / total
            ),
            "roc_auc": float(roc),
            "pr_auc": float(precision_recall),
        }
        if self.is_binary:
            figures |= _positive(right[1], labelled[1], predicted[1])
        return figures

    def calibration(self, weights: Floats | None = None) -> CalibrationBins:
        """Rows by the probability that the model gave.

        That is the probability of its prediction, or of the positive class where there are two.
        """
        w = np.ones(self.rows) if weights is None else weights
        rows, confidence, hits = (
            sums(self._bins, each, CALIBRATION_BINS)
            for each in (w, w * self._confidence, w * self._hits)
        )
        filled = np.maximum(rows, 1e-300)
        return CalibrationBins(rows=rows, confidence=confidence / filled, share=hits / filled)

    def _brier(self) -> Floats:
        if self.is_binary:
            error: Floats = self._confidence - self._hits
            return error**2
        own = self.probabilities[np.arange(self.rows), self.labels]
        squares: Floats = (self.probabilities**2).sum(axis=1) - 2 * own + 1
        return squares


@dataclass(frozen=True, kw_only=True)
class CalibrationBins:
    """Rows in bins of equal width by probability.

    Attributes:
        rows: rows of each bin.
        confidence: their mean probability; 0 in an empty bin.
        share: the share of them for which it came true.
    """

    rows: Floats
    confidence: Floats
    share: Floats


class Curve:
    """How well a score tells one class from the rest, at every threshold.

    Args:
        scores: [rows].
        positive: whether each row is of the class.
    """

    def __init__(self, scores: Floats, positive: npt.NDArray[np.bool_]) -> None:
        self._order = np.argsort(-scores, kind="stable")
        ordered = scores[self._order]
        self._positive = positive[self._order].astype(np.float64)
        # Rows of one score share a threshold.
        self._ends = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)

    def counts(self, weights: Floats | None = None) -> tuple[Floats, Floats]:
        """True and false positives at each threshold, the highest first."""
        w = np.ones(len(self._order)) if weights is None else weights[self._order]
        true = np.cumsum(w * self._positive)[self._ends]
        return true, np.cumsum(w)[self._ends] - true

    def areas(self, weights: Floats | None = None) -> tuple[float, float]:
        """Areas under the ROC and the precision-recall curve; NaN where one side has no rows."""
        true, false = self.counts(weights)
        if true[-1] == 0 or false[-1] == 0:
            return math.nan, math.nan
        roc = np.trapezoid(np.append(0, true), np.append(0, false)) / (true[-1] * false[-1])
        recall, precision = self.precision_recall(weights)
        return float(roc), float(np.trapezoid(precision, recall))

    def precision_recall(self, weights: Floats | None = None) -> tuple[Floats, Floats]:
        """Recall and precision at each threshold; the curve starts at recall 0, as Spark's does."""
        true, false = self.counts(weights)
        seen = true + false > 0
        precision = true[seen] / (true + false)[seen]
        recall = true[seen] / true[-1]
        return np.append(0, recall), np.append(precision[:1], precision)


class Regressed:
    """Rows with a number to predict, and the numbers that a model gave.

    Args:
        labels: [rows].
        predictions: [rows].
    """

    def __init__(self, labels: Floats, predictions: Floats) -> None:
        self.labels = labels
        self.predictions = predictions
        self._errors = labels - predictions

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.labels)

    def at(self, positions: Integers) -> Self:
        """Some of the rows only."""
        return type(self)(self.labels[positions], self.predictions[positions])

    def metrics(self, weights: Floats | None = None) -> dict[str, float]:
        """Each metric, with each row counted `weights` times; R2 is NaN for equal labels."""
        w = np.ones(self.rows) if weights is None else weights
        mse = float(np.average(self._errors**2, weights=w))
        spread = float(
            np.average((self.labels - np.average(self.labels, weights=w)) ** 2, weights=w)
        )
        return {
            "rmse": math.sqrt(mse),
            "mse": mse,
            "mae": float(np.average(np.abs(self._errors), weights=w)),
            "r2": 1 - mse / spread if spread > 0 else math.nan,
        }


def _positive(right: Any, labelled: Any, predicted: Any) -> dict[str, float]:
    return {
        "precision": float(right / predicted) if predicted else 0.0,
        "recall": float(right / labelled) if labelled else math.nan,
        "f1": float(2 * right / (labelled + predicted)) if labelled + predicted else math.nan,
    }
