"""Pictures of scores: calibration, ROC and precision-recall curves, residuals, slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.metrics import CalibrationBins, Curve, Floats, Metric
from trainyard.plots import png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_CURVES = 10
_MOST_POINTS = 20_000
_MOST_BARS = 30
_COLOURS = {"challenger": "tab:blue", "champion": "tab:orange"}


def calibration(models: Mapping[str, CalibrationBins], title: str, of: str) -> bytes:
    """How often what a model says with a probability comes true.

    Args:
        models: bins by the model's role.
        title: text above the picture.
        of: whose probability it is, such as "its prediction".
    """
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    figure, (axes, below) = plt.subplots(
        2, 1, figsize=(5.6, 6.4), height_ratios=(3, 1), sharex=True, layout="constrained"
    )
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", label="perfect calibration")
    edges = np.linspace(0, 1, len(next(iter(models.values())).rows) + 1)
    width = edges[1] / (len(models) + 0.25)
    for number, (name, bins) in enumerate(models.items()):
        filled = bins.rows > 0
        colour = _COLOURS[name]
        axes.plot(bins.confidence[filled], bins.share[filled], marker="o", color=colour, label=name)
        left = edges[:-1] + edges[1] * 0.125 / len(models) + number * width
        below.bar(left, bins.rows, width, align="edge", color=colour, label=name)
    axes.set(title=title, ylabel="share of rows for which it is true", ylim=(-0.02, 1.02))
    axes.legend(loc="upper left")
    axes.grid(alpha=0.3)
    below.set(xlabel=f"probability of {of}", ylabel="rows", yscale="log", xlim=(-0.02, 1.02))
    # From under 1 row up, so that a bin of one row shows.
    below.set_ylim(bottom=0.5)
    below.yaxis.set_major_formatter("{x:.0f}")
    below.yaxis.set_minor_formatter(NullFormatter())
    below.grid(alpha=0.3)
    return png(figure)


def curves(found: Mapping[str, Curve], title: str) -> bytes:
    """ROC and precision-recall curves side by side.

    Args:
        found: curve of each class or model, by its label in the legend.
        title: text above the picture.
    """
    from matplotlib import pyplot as plt

    figure, (roc, other) = plt.subplots(1, 2, figsize=(10.4, 5.2), layout="constrained")
    roc.plot([0, 1], [0, 1], color="grey", linestyle="--", label="chance (0.500)")
    # The worst ones, where there are too many to tell apart.
    shown = sorted(found, key=lambda name: found[name].areas()[0])[:_MOST_CURVES]
    for name in (name for name in found if name in shown):
        true, false = found[name].counts()
        if true[-1] == 0 or false[-1] == 0:
            continue
        area, precision_area = found[name].areas()
        roc.plot(
            np.append(0, false / false[-1]),
            np.append(0, true / true[-1]),
            label=f"{name} ({area:.3f})",
        )
        other.plot(*found[name].precision_recall(), label=f"{name} ({precision_area:.3f})")
    few = "" if len(found) <= _MOST_CURVES else f"\nthe {_MOST_CURVES} worst of {len(found)}"
    figure.suptitle(title + few, fontsize=11)
    roc.set(title="ROC", xlabel="false positive rate", ylabel="true positive rate")
    other.set(title="Precision and recall", xlabel="recall", ylabel="precision")
    for axes in (roc, other):
        _unit_square(axes)
        axes.legend(title="area under the curve", fontsize=8, title_fontsize=8)
    return png(figure)


def residuals(labels: Floats, predictions: Floats, title: str, unit: str) -> bytes:
    """Residuals of a regression: against the prediction, and how they are distributed.

    Args:
        labels: [rows].
        predictions: [rows].
        title: text above the picture.
        unit: name of what is predicted.
    """
    from matplotlib import pyplot as plt

    figure, (cloud, counts) = plt.subplots(
        1, 2, figsize=(10.4, 4.8), width_ratios=(2, 1), sharey=True, layout="constrained"
    )
    errors = labels - predictions
    shown = slice(None, None, -(-len(errors) // _MOST_POINTS))
    alpha = min(1.0, max(0.05, 300 / len(errors)))
    cloud.scatter(
        predictions[shown], errors[shown], s=8, alpha=alpha, color="tab:blue", linewidth=0
    )
    mean = float(errors.mean())
    for axes in (cloud, counts):
        axes.axhline(0, color="black", linewidth=0.8)
        axes.axhline(mean, color="tab:red", linestyle="--", label=f"mean residual {mean:.3g}")
        axes.grid(alpha=0.3)
    counts.hist(errors, bins=50, orientation="horizontal", color="tab:blue")
    figure.suptitle(title, fontsize=11)
    cloud.set(xlabel=f"predicted {unit}", ylabel=f"residual: true minus predicted {unit}")
    cloud.legend(loc="best")
    counts.set(xlabel="rows")
    return png(figure)


def slice_bars(
    values: Sequence[str],
    rows: Sequence[int],
    models: Mapping[str, Sequence[Metric]],
    overall: float,
    names: tuple[str, str],
) -> bytes:
    """A metric for each value of a column, with its interval.

    Args:
        values: the column's values.
        rows: rows of each.
        models: the metric of each value, by the model's role.
        overall: the challenger's metric over all rows.
        names: the metric and the column.
    """
    from matplotlib import pyplot as plt

    metric, column = names
    count = min(len(values), _MOST_BARS)
    figure, axes = plt.subplots(
        figsize=(7.2, 1.8 + 0.3 * count * len(models) ** 0.5), layout="constrained"
    )
    height = 0.8 / len(models)
    for number, (name, found) in enumerate(models.items()):
        shown = list(found[:count])
        spread = np.array([[m.value - m.low for m in shown], [m.high - m.value for m in shown]])
        at = np.arange(count) + (number - (len(models) - 1) / 2) * height
        axes.barh(
            at,
            [m.value for m in shown],
            height * 0.92,
            xerr=np.maximum(spread, 0),
            color=_COLOURS[name],
            error_kw={"elinewidth": 1, "capsize": 2},
            label=name,
        )
    axes.axvline(overall, color="black", linestyle="--", linewidth=1, label="challenger, all rows")
    labels = [f"{value[:24]}  ({n} rows)" for value, n in zip(values, rows, strict=True)]
    axes.set_yticks(range(count), labels[:count])
    axes.invert_yaxis()
    more = "" if count == len(values) else f", the {count} largest of {len(values)} values"
    axes.set(
        title=f"{metric} by {column}{more}", xlabel=f"{metric}, with its interval", ylabel=column
    )
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return png(figure)


def _unit_square(axes: Axes) -> None:
    settings: dict[str, Any] = {"xlim": (-0.02, 1.02), "ylim": (-0.02, 1.02), "aspect": "equal"}
    axes.set(**settings)
    axes.grid(alpha=0.3)
