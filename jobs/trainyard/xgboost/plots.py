"""Pictures of what boosted trees go by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trainyard.plots import png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_FEATURES = 20


def importances(gains: Sequence[float], names: Sequence[str], title: str) -> bytes:
    """What share of the training's whole gain the splits by each feature brought.

    Args:
        gains: total gain of each feature.
        names: of the features.
        title: text above it.
    """
    share = np.array(gains) / (sum(gains) or 1.0)
    top = np.argsort(-share, kind="stable")[:_MOST_FEATURES][::-1]
    figure, axes = _lines(names, top, title)
    axes.barh(range(len(top)), share[top])
    axes.set_xlabel("share of the total gain")
    axes.grid(axis="x", alpha=0.3)
    return png(figure)


def influences(
    shap: npt.NDArray[Any], features: npt.NDArray[Any], names: Sequence[str], title: str
) -> bytes:
    """How much each feature moves the predictions: a dot for each row, or bars for more outputs.

    Args:
        shap: SHAP values [rows, outputs, width + 1]; the last of a row is what it starts from.
        features: [rows, width]; NaN is a missing number.
        names: of the features.
        title: text above it.
    """
    strength = np.abs(shap[:, :, :-1]).mean(axis=(0, 1))
    top = np.argsort(-strength, kind="stable")[:_MOST_FEATURES][::-1]
    figure, axes = _lines(names, top, title)
    if shap.shape[1] > 1:
        axes.barh(range(len(top)), strength[top])
        axes.set_xlabel("mean of the absolute SHAP value, over rows and classes")
    else:
        for line, feature in enumerate(top):
            _dots(axes, line, shap[:, 0, feature], features[:, feature])
        axes.axvline(0, color="grey", linewidth=0.8)
        axes.set_xlabel("SHAP value; blue: least of the feature, red: most, grey: missing")
    axes.grid(axis="x", alpha=0.3)
    return png(figure)


def _lines(names: Sequence[str], top: npt.NDArray[Any], title: str) -> tuple[Figure, Axes]:
    """A picture with a line for each of the features at these positions, the last one on top."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 1.2 + 0.32 * len(top)), layout="constrained")
    axes.set_yticks(range(len(top)), [names[feature][:40] for feature in top])
    axes.set_title(title)
    return figure, axes


def _dots(axes: Axes, line: int, shap: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
    """Dots of one feature, coloured by the value's place among the distinct ones."""
    heights = line + np.random.default_rng(line).uniform(-0.3, 0.3, len(shap))
    known = ~np.isnan(values)
    axes.scatter(shap[~known], heights[~known], color="grey", s=6)
    axes.scatter(
        shap[known], heights[known], c=places(values[known]), cmap="coolwarm", vmin=0, vmax=1, s=6
    )


def places(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Where each value is among the distinct ones, from 0 for the least to 1 for the greatest."""
    distinct, place = np.unique(values, return_inverse=True)
    found: npt.NDArray[np.float64] = place / max(len(distinct) - 1, 1)
    return found
