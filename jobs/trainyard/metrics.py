"""Metrics of a classifier, each with the interval in which it lies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

RESAMPLES = 1000
"""Bootstrap samples behind an interval."""

_CHUNK = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric and the interval in which it lies at the confidence asked for."""

    value: float
    low: float
    high: float


def wilson(right: int, rows: int, confidence: float) -> Metric:
    """A share with its Wilson score interval."""
    z = _z(confidence)
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


def mean(value: float, deviation: float, rows: int, confidence: float) -> Metric:
    """A mean over rows with its normal interval, from the rows' standard deviation."""
    spread = _z(confidence) * deviation / math.sqrt(rows)
    return Metric(value=value, low=value - spread, high=value + spread)


def macro(confusion: np.ndarray[Any, Any], confidence: float, seed: int = 0) -> dict[str, Metric]:
    """Precision, recall and F1, each the plain mean over the classes that have rows.

    The interval is a percentile bootstrap over rows; drawing the counts of (label, prediction) from
    a multinomial is the same as drawing rows. A class that was never predicted has precision 0.

    Args:
        confusion: counts [label, prediction].
        confidence: of the interval.
        seed: of the bootstrap.
    """
    labels, predictions = np.nonzero(confusion)
    counts = confusion[labels, predictions]
    cells = _Cells(labels=labels, predictions=predictions, classes=len(confusion))
    draws = np.random.default_rng(seed)
    rows = counts.sum()
    chunk = max(1, _CHUNK // (len(counts) + len(confusion)))
    sizes = [min(chunk, RESAMPLES - start) for start in range(0, RESAMPLES, chunk)]
    samples = np.concatenate(
        [cells.macro(draws.multinomial(rows, counts / rows, size)) for size in sizes], axis=1
    )
    values = cells.macro(counts[None])[:, 0]
    tail = (1 - confidence) / 2
    lows, highs = np.quantile(samples, [tail, 1 - tail], axis=1)
    names = ("macro_precision", "macro_recall", "macro_f1")
    return {
        name: Metric(value=float(value), low=float(min(low, value)), high=float(max(high, value)))
        for name, value, low, high in zip(names, values, lows, highs, strict=True)
    }


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """The cells of a confusion matrix that have rows."""

    labels: np.ndarray[Any, Any]
    predictions: np.ndarray[Any, Any]
    classes: int

    def macro(self, counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Precision, recall and F1 [3, n] of counts [n, cell]."""
        right = self._sums(counts * (self.labels == self.predictions), self.labels)
        labelled = self._sums(counts, self.labels)
        predicted = self._sums(counts, self.predictions)
        present = labelled > 0
        figures = (
            right / np.maximum(predicted, 1),
            right / np.maximum(labelled, 1),
            2 * right / np.maximum(labelled + predicted, 1),
        )
        return np.stack([(f * present).sum(axis=1) / present.sum(axis=1) for f in figures])

    def _sums(self, counts: np.ndarray[Any, Any], classes: np.ndarray[Any, Any]) -> Any:
        """Counts [n, class] of counts [n, cell]."""
        order = np.argsort(classes, kind="stable")
        present, starts = np.unique(classes[order], return_index=True)
        sums = np.zeros((len(counts), self.classes))
        sums[:, present] = np.add.reduceat(counts[:, order], starts, axis=1)
        return sums


def _z(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)
