"""Intervals of metrics by a seeded bootstrap over rows, paired where two models scored them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainyard.metrics import Floats, Measured, Metric, wilson


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How intervals are made.

    Attributes:
        samples: bootstrap samples.
        confidence: of the intervals.
        seed: of the samples.
    """

    samples: int
    confidence: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """What a bootstrap over the same rows of some models found.

    Attributes:
        metrics: of each model, by name; what is not defined for a model's rows is left out.
        differences: the first model's metrics minus the second's, where there are two.
    """

    metrics: dict[str, dict[str, Metric]]
    differences: dict[str, Metric]


def intervals(
    models: Mapping[str, Measured],
    plan: Plan,
    exact: Mapping[str, Mapping[str, float]] | None = None,
    share: float = 1.0,
) -> Intervals:
    """Percentile intervals of each metric, and of its difference between two models.

    All models are measured on the same resamples, so that what makes a resample easy or hard for
    both cancels in the difference.

    Args:
        models: one or two, on the same rows.
        plan: how.
        exact: values over all rows, where `models` hold a sample of them only.
        share: of all rows that the sample is; intervals shrink by its root.
    """
    values = {name: model.metrics() for name, model in models.items()}
    rows = next(iter(models.values())).rows
    draws = np.random.default_rng(plan.seed)
    resampled: dict[str, dict[str, list[float]]] = {
        name: {metric: [] for metric in found} for name, found in values.items()
    }
    for _ in range(plan.samples):
        weights = np.bincount(draws.integers(0, rows, rows), minlength=rows).astype(np.float64)
        for name, model in models.items():
            for metric, value in model.metrics(weights).items():
                resampled[name][metric].append(value)

    exact = exact or {}
    final = {name: {**found, **exact.get(name, {})} for name, found in values.items()}

    def interval(name: str, metric: str) -> Metric:
        value = final[name][metric]
        if metric == "accuracy":
            # A bootstrap of a share has no width at 0 and 1.
            all_rows = round(rows / share)
            return wilson(round(value * all_rows), all_rows, plan.confidence)
        deviations = np.array(resampled[name][metric]) - values[name][metric]
        return _interval(value, deviations * math.sqrt(share), plan.confidence)

    def difference(first: str, second: str, metric: str) -> Metric:
        samples = np.array(resampled[first][metric]) - np.array(resampled[second][metric])
        deviations = samples - (values[first][metric] - values[second][metric])
        value = final[first][metric] - final[second][metric]
        return _interval(value, deviations * math.sqrt(share), plan.confidence)

    defined = [
        m for m in next(iter(final.values())) if all(math.isfinite(f[m]) for f in final.values())
    ]
    pairs = [tuple(models)] if len(models) == 2 else []
    return Intervals(
        metrics={name: {metric: interval(name, metric) for metric in defined} for name in models},
        differences={m: difference(first, second, m) for first, second in pairs for m in defined},
    )


def _interval(value: float, deviations: Floats, confidence: float) -> Metric:
    tail = (1 - confidence) / 2
    # A metric may not be defined in a resample, such as an area when a class was not drawn.
    low, high = np.nanquantile(deviations, [tail, 1 - tail])
    return Metric(value=value, low=value + min(0.0, float(low)), high=value + max(0.0, float(high)))
