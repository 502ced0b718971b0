"""Pictures of a search: its history, its trials' values side by side, and what mattered."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from trainyard.plots import png
from trainyard.spaces import Dimension
from trainyard.tuning.engines import Goal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = {
    TrialState.COMPLETE: ("complete", "o", "tab:blue"),
    TrialState.PRUNED: ("given up early", "v", "tab:orange"),
}


_MOST_LABELS = 14
"""Choices up to which each has its name beside the axis."""


def importances(study: optuna.Study) -> dict[str, float]:
    """How much of the difference between good and bad trials each setting makes, adding up to 1.

    Empty where too few trials are complete, or all have one value, to tell.
    """
    complete = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE]
    if len(complete) < 4 or len({trial.value for trial in complete}) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {name: float(value) for name, value in found.items() if np.isfinite(value)}


def history(trials: Sequence[FrozenTrial], goal: Goal, title: str) -> bytes:
    """Each trial's value, and the best so far.

    Args:
        trials: those that ended, in the order of their numbers.
        goal: what they are compared by.
        title: text above the picture.
    """
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    low, high = _shown_range([t.value for t in trials if t.value is not None], goal)
    for state, (label, marker, colour) in _SHOWN.items():
        shown = [(t.number, t.value) for t in trials if t.state == state and t.value is not None]
        if shown:
            axes.scatter(
                [number for number, _ in shown],
                np.clip([value for _, value in shown], low, high),
                marker=marker,
                color=colour,
                s=28,
                label=label,
                zorder=3,
            )
    complete = [t for t in trials if t.state == TrialState.COMPLETE]
    if complete:
        gather = np.maximum if goal.grows else np.minimum
        best = gather.accumulate(np.array([t.value for t in complete], float))
        drawn = np.clip(best, low, high)
        numbers = [t.number for t in complete]
        last = max(t.number for t in trials)
        axes.step(
            [*numbers, last],
            [*drawn, drawn[-1]],
            where="post",
            color="tab:green",
            label=f"best so far ({best[-1]:.4g})",
        )
    failed = [t.number for t in trials if t.state == TrialState.FAIL]
    for place, number in enumerate(failed):
        name = "_" if place else f"failed ({len(failed)})"  # a name in the legend, once
        axes.axvline(number, color="tab:red", linestyle=":", linewidth=1, label=name)
    out = [t.number for t in trials if t.value is not None and not low <= t.value <= high]
    if out:
        edge = low if goal.grows else high
        name = f"worse than {edge:.4g} ({len(out)})"
        axes.scatter(
            out, [edge] * len(out), s=110, facecolors="none", edgecolors="black", label=name
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    better = "more" if goal.grows else "less"
    axes.set(title=title, xlabel="trial", ylabel=f"{goal.metric} ({better} is better)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return png(figure)


def parallel_coordinates(
    trials: Sequence[FrozenTrial], space: Sequence[Dimension], goal: Goal, title: str
) -> bytes:
    """A line for each complete trial through its values, coloured by how it did.

    Args:
        trials: the complete ones.
        space: what was searched.
        goal: what they are compared by.
        title: text above the picture.
    """
    from matplotlib import pyplot as plt
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    results = np.array([trial.value for trial in trials], float)
    worst_first = np.argsort(results if goal.grows else -results, kind="stable")
    ranks = np.empty(len(trials))
    ranks[worst_first] = np.linspace(0, 1, len(trials)) if len(trials) > 1 else 1
    columns = [_places([t.params[d.name] for t in trials], d) for d in space]
    low, high = _shown_range(results.tolist(), goal)
    judged = Dimension(name=goal.metric, low=low, high=high)
    heights = np.column_stack([*columns, _places(np.clip(results, low, high), judged)])
    names = [*(d.name for d in space), goal.metric]
    figure, axes = plt.subplots(figsize=(1.6 + 1.7 * len(names), 4.6), layout="constrained")
    colours = plt.get_cmap("viridis_r")
    for trial in worst_first:  # the best on top
        axes.plot(
            range(len(names)),
            heights[trial],
            color=colours(ranks[trial]),
            alpha=0.5 + 0.45 * ranks[trial],
            linewidth=0.8 + 1.4 * ranks[trial],
        )
    for place, dimension in enumerate(space):
        _ticks(axes, place, dimension)
    cut = (float(results.min()) < low, high < float(results.max()))
    _ticks(axes, len(space), judged, cut)
    for place in range(len(names)):
        axes.axvline(place, color="black", linewidth=0.8)
    labels = [name.replace(".", ".\n") for name in names]
    axes.set_xticks(range(len(names)), labels, fontsize=9)
    axes.set(title=title, ylim=(-0.05, 1.05), xlim=(-0.35, len(names) - 0.55), yticks=[])
    for side in ("left", "right", "top", "bottom"):
        axes.spines[side].set_visible(False)
    scale = ScalarMappable(Normalize(0, 1), cmap=colours)
    bar = figure.colorbar(scale, ax=axes, ticks=[0, 1], pad=0.02, shrink=0.8)
    bar.ax.set_yticklabels(["worst", "best"], fontsize=8)
    return png(figure)


def importance_bars(found: Mapping[str, float], title: str) -> bytes:
    """The importance of each setting, the greatest on top."""
    from matplotlib import pyplot as plt

    names = sorted(found, key=lambda name: found[name])
    figure, axes = plt.subplots(figsize=(7.2, 1.4 + 0.4 * len(names)), layout="constrained")
    bars = axes.barh(names, [found[name] for name in names], color="tab:blue")
    axes.bar_label(bars, fmt="{:.2f}", padding=3, fontsize=8)
    axes.set_axisbelow(True)
    figure.suptitle(title, fontsize="medium")  # over the names too, where it has the room
    axes.set(xlabel="share of what tells good trials from bad", xlim=(0, 1.08))
    axes.grid(axis="x", alpha=0.3)
    return png(figure)


def _places(values: Sequence[Any], dimension: Dimension) -> npt.NDArray[np.float64]:
    """Heights from 0 to 1 of values on their axis."""
    if dimension.choices:
        labels = list(dimension.labels)
        return np.array([_height(labels.index(value), labels) for value in values], float)
    low, high = dimension.low, dimension.high
    if high == low:
        return np.full(len(values), 0.5)
    found = np.array(values, float)
    if dimension.log:
        found, low, high = np.log(found), np.log(low), np.log(high)
    placed: npt.NDArray[np.float64] = (found - low) / (high - low)
    return placed


def _ticks(
    axes: Axes, place: int, dimension: Dimension, cut: tuple[bool, bool] = (False, False)
) -> None:
    """What the ends and the middle of an axis stand for, or its choices.

    Args:
        axes: where the axis is drawn.
        place: of the axis, from the left.
        dimension: of it.
        cut: whether its lower and its upper end stand for what lies beyond them too.
    """
    if dimension.choices:
        labels = list(dimension.labels)
        # What tells long ones apart is most often at their end, as of networks in one module.
        texts = [text if len(text) < 23 else f"...{text[-20:]}" for text in map(str, labels)]
        every = -(-len(labels) // _MOST_LABELS)
        marks = [(_height(at, labels), text) for at, text in enumerate(texts) if at % every == 0]
    else:
        low, high = dimension.low, dimension.high
        middle = (low * high) ** 0.5 if dimension.log else (low + high) / 2
        below, above = "\u2264 " * cut[0], "\u2265 " * cut[1]
        marks = [
            (0, f"{below}{low:.4g}"),
            (0.5, f"{middle:.3g}"),
            (1, f"{above}{high:.4g}"),
        ]
    for height, text in marks:
        axes.text(
            place + 0.05,
            height,
            text,
            fontsize=8,
            va="center",
            bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5},
            zorder=4,
        )


def _height(at: int, labels: Sequence[Any]) -> float:
    return at / (len(labels) - 1) if len(labels) > 1 else 0.5


def _shown_range(values: Sequence[float], goal: Goal) -> tuple[float, float]:
    """The least and the greatest value of an axis on which one bad trial presses no others flat.

    It reaches from the best value to five times as far as the median, or to the worst.
    """
    if not values:
        return 0.0, 1.0
    best, worst = float(max(values)), float(min(values))
    if not goal.grows:
        best, worst = worst, best
    reach = 5 * abs(best - float(np.median(values)))
    if 0 < reach < abs(best - worst):
        worst = best - reach if goal.grows else best + reach
    return min(best, worst), max(best, worst)
