"""Pictures of a search: nothing is cut off, and one bad trial does not flatten the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from trainyard.spaces import Dimension
from trainyard.tuning import plots
from trainyard.tuning.engines import Goal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATE = Dimension(name="learning_rate", low=0.001, high=1.0, log=True)


def trials_of(values: Sequence[float | None]) -> list[FrozenTrial]:
    """A complete trial for each value; a failed one for None."""
    found = []
    for number, value in enumerate(values):
        trial = create_trial(
            state=TrialState.FAIL if value is None else TrialState.COMPLETE,
            value=value,
            params={RATE.name: 0.01},
            distributions={RATE.name: FloatDistribution(RATE.low, RATE.high, log=True)},
        )
        trial.number = number
        found.append(trial)
    return found


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, as they are before they become PNG."""
    figures: list[Figure] = []

    def keep(figure: Figure) -> bytes:
        figures.append(figure)
        return b""

    monkeypatch.setattr(plots, "png", keep)
    return figures


@pytest.mark.parametrize(
    ("values", "grows", "shown"),
    [
        ([0.97, 0.96, 0.95, None, 0.09], True, (0.97 - 5 * 0.015, 0.97)),
        ([0.3, 0.4, 0.5, 1e9], False, (0.3, 0.3 + 5 * 0.15)),
        ([-0.5, -0.4, -0.3], True, (-0.5, -0.3)),
        ([0.3, 0.3, 0.3, 0.9], False, (0.3, 0.9)),
        ([0.3], False, (0.3, 0.3)),
    ],
)
def test_one_bad_trial_does_not_flatten_the_others(
    drawn: list[Figure], values: list[float | None], grows: bool, shown: tuple[float, float]
) -> None:
    goal = Goal(metric="validation_x", grows=grows)
    trials = trials_of(values)
    plots.history(trials, goal, "history")
    [history] = drawn[0].axes
    heights = np.asarray(history.collections[0].get_offsets())[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx(shown)
    labels = [text.get_text() for text in history.get_legend().get_texts()]  # type: ignore[union-attr]
    known = [value for value in values if value is not None]
    worst = min(known) if grows else max(known)
    cut = worst not in shown
    assert any(label.startswith("worse than") for label in labels) == cut
    complete = [trial for trial in trials if trial.value is not None]
    plots.parallel_coordinates(complete, (RATE,), goal, "side by side")
    texts = [text.get_text() for text in drawn[1].axes[0].texts]
    assert any(text.startswith(("≤", "≥")) for text in texts) == cut


def test_a_long_title_is_not_cut_off(drawn: list[Figure]) -> None:
    shares = {"booster_params.min_child_weight": 0.9, "booster_params.colsample_bytree": 0.1}
    plots.importance_bars(shares, "What validation_mlogloss depends on in 13 complete trials")
    [figure] = drawn
    figure.draw_without_rendering()
    for text in [*figure.texts, figure.axes[0].title]:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
