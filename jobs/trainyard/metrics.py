"""Metrics of a classifier, each with the interval in which it lies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

RESAMPLES = 1000
"""Bootstrap samples behind an interval."""

_CELLS = 4_000_000


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
    rows = int(confusion.sum())
    draws = np.random.default_rng(seed)
    chunk = max(1, _CELLS // confusion.size)
    sizes = [min(chunk, RESAMPLES - start) for start in range(0, RESAMPLES, chunk)]
    shares = confusion.ravel() / rows
    drawn = [
        _macro(draws.multinomial(rows, shares, size).reshape(size, *confusion.shape))
        for size in sizes
    ]
    values = _macro(confusion[None])[:, 0]
    samples = np.concatenate(drawn, axis=1)
    tail = (1 - confidence) / 2
    lows, highs = np.quantile(samples, [tail, 1 - tail], axis=1)
    names = ("macro_precision", "macro_recall", "macro_f1")
    return {
        name: Metric(value=float(value), low=float(min(low, value)), high=float(max(high, value)))
        for name, value, low, high in zip(names, values, lows, highs, strict=True)
    }


def _macro(confusions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Precision, recall and F1 [3, n] of counts [n, label, prediction]."""
    right = np.diagonal(confusions, axis1=1, axis2=2).astype(float)
    labels, predictions = confusions.sum(axis=2), confusions.sum(axis=1)
    present = labels > 0
    precision = right / np.maximum(predictions, 1)
    recall = right / np.maximum(labels, 1)
    f1 = 2 * right / np.maximum(labels + predictions, 1)
    classes = present.sum(axis=1)
    return np.stack(
        [(figure * present).sum(axis=1) / classes for figure in (precision, recall, f1)]
    )


def _z(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)
