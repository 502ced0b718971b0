"""Metrics are scikit-learn's under any weights, and intervals hold what they promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from trainyard.bootstrap import Plan, intervals
from trainyard.metrics import Classified, Curve, Regressed, wilson


def made(rows: int, classes: int, seed: int, *, ties: bool = False) -> Classified:
    """Rows whose probabilities know something of their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    scores = rng.normal(size=(rows, classes)) + 1.2 * np.eye(classes)[labels]
    if ties:
        scores = scores.round()
    exponents = np.exp(scores)
    probabilities = exponents / exponents.sum(axis=1, keepdims=True)
    return Classified(labels, probabilities, -np.log(probabilities[np.arange(rows), labels]))


def ovr(model: Classified, metric: Any, **arguments: Any) -> float:
    """A metric of two classes as the mean of one class against the rest."""
    classes = [c for c in model.curves if 0 < (model.labels == c).sum() < model.rows]
    found = [metric(model.labels == c, model.probabilities[:, c], **arguments) for c in classes]
    return float(np.mean(found))


def trapezoid(labels: Any, scores: Any, sample_weight: Any = None) -> float:
    """The area under scikit-learn's precision-recall curve as Spark takes it."""
    precision, recall, _ = sk.precision_recall_curve(labels, scores, sample_weight=sample_weight)
    # Spark's curve starts with the precision at the highest threshold.
    precision[-1] = precision[-2]
    return float(sk.auc(recall, precision))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(8, 60), st.integers(0, 10_000), st.booleans(), st.booleans())
def test_metrics_are_scikit_learns(
    classes: int, rows: int, seed: int, ties: bool, weighted: bool
) -> None:
    model = made(rows, classes, seed, ties=ties)
    rng = np.random.default_rng(seed)
    # Whole positive weights are what a bootstrap that draws every row would give.
    weights = rng.integers(1, 4, rows).astype(float) if weighted else None
    found = model.metrics(weights)
    labels, predictions = model.labels, model.probabilities.argmax(1)
    precision, recall, f1, _ = sk.precision_recall_fscore_support(
        labels,
        predictions,
        labels=np.unique(labels),
        average="macro",
        zero_division=0,
        sample_weight=weights,
    )
    own = model.probabilities[np.arange(rows), labels]
    expected = {
        "accuracy": sk.accuracy_score(labels, predictions, sample_weight=weights),
        "macro_precision": precision,
        "macro_recall": recall,
        "macro_f1": f1,
        "log_loss": float(np.average(-np.log(own), weights=weights)),
        "brier": np.average(
            (model.probabilities[:, 1] - (labels == 1)) ** 2
            if classes == 2
            else ((model.probabilities - np.eye(classes)[labels]) ** 2).sum(axis=1),
            weights=weights,
        ),
    }
    if len(np.unique(labels)) > 1:
        expected |= {
            "roc_auc": ovr(model, sk.roc_auc_score, sample_weight=weights),
            "pr_auc": ovr(model, trapezoid, sample_weight=weights),
        }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert {"precision", "recall", "f1"} <= found.keys() or classes > 2


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=2, max_size=30))
def test_regression_metrics_are_scikit_learns(pairs: list[tuple[float, float]]) -> None:
    labels, predictions = np.array(pairs).T
    found = Regressed(labels, predictions).metrics()
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(labels, predictions))
    assert found["rmse"] == pytest.approx(sk.root_mean_squared_error(labels, predictions))
    if np.ptp(labels) > 1e-3:
        assert found["r2"] == pytest.approx(sk.r2_score(labels, predictions), rel=1e-6)


def test_r2_of_equal_labels_is_no_number() -> None:
    found = Regressed(np.ones(5), np.arange(5.0)).metrics()
    assert math.isnan(found["r2"])
    assert found["mae"] == 1.4


def test_calibration_by_hand() -> None:
    probabilities = np.array([[0.05, 0.95], [0.05, 0.95], [0.85, 0.15], [0.75, 0.25]])
    labels = np.array([1, 0, 0, 0])
    model = Classified(labels, probabilities, np.ones(4))
    bins = model.calibration()
    assert bins.rows.tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0, 2]
    assert bins.share[9] == 0.5
    assert bins.confidence[9] == pytest.approx(0.95)
    # |0.15 - 0| and |0.25 - 0| of one row each, |0.95 - 0.5| of two.
    assert model.metrics()["calibration_error"] == pytest.approx((0.15 + 0.25 + 2 * 0.45) / 4)


def test_a_class_without_rows_has_no_area_and_does_not_count() -> None:
    model = made(40, 3, 1)
    kept = model.at(np.flatnonzero(model.labels != 2))
    assert math.isnan(kept.curves[2].areas()[0])
    assert kept.metrics()["roc_auc"] == pytest.approx(
        np.mean([kept.curves[c].areas()[0] for c in (0, 1)])
    )
    assert math.isnan(model.at(np.flatnonzero(model.labels == 1)).metrics()["roc_auc"])


def test_a_curve_of_equal_scores_is_chance() -> None:
    roc, precision_recall = Curve(np.full(10, 0.3), np.arange(10) < 4).areas()
    assert (roc, precision_recall) == pytest.approx((0.5, 0.4))


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_its_value(counts: tuple[int, int]) -> None:
    right, rows = counts
    narrow, wide = wilson(right, rows, 0.9), wilson(right, rows, 0.99)
    assert 0 <= wide.low <= narrow.low <= right / rows <= narrow.high <= wide.high <= 1


def test_wilson_by_hand() -> None:
    # Newcombe 1998, table I: 81 of 263 and 0 of 20.
    found = wilson(81, 263, 0.95)
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20, 0.95).high == pytest.approx(0.1611, abs=5e-5)


class TestBootstrap:
    def test_it_covers_the_truth(self) -> None:
        truth = made(200_000, 2, 0).metrics()
        plan = Plan(samples=200, confidence=0.9, seed=0)
        held = dict.fromkeys(("macro_recall", "log_loss", "roc_auc", "brier"), 0)
        for seed in range(1, 61):
            (found,) = intervals({"challenger": made(300, 2, seed)}, plan).metrics.values()
            for name in held:
                held[name] += found[name].low <= truth[name] <= found[name].high
        assert all(46 <= count <= 60 for count in held.values()), held

    def test_it_is_seeded(self) -> None:
        model = made(100, 3, 0)
        plan = Plan(samples=100, confidence=0.95, seed=4)
        first = intervals({"challenger": model}, plan)
        assert first == intervals({"challenger": model}, plan)
        assert first != intervals({"challenger": model}, Plan(samples=100, confidence=0.95, seed=5))

    def test_a_paired_difference_is_surer_than_the_two_intervals(self) -> None:
        good = made(400, 2, 0)
        # Almost the same model: what is hard for one is hard for the other.
        shifted = np.clip(good.probabilities + np.array([0.02, -0.02]), 1e-6, 1 - 1e-6)
        losses = -np.log(shifted[np.arange(400), good.labels])
        other = Classified(good.labels, shifted, losses)
        plan = Plan(samples=300, confidence=0.95, seed=0)
        found = intervals({"challenger": good, "champion": other}, plan)
        own = found.metrics["challenger"]["log_loss"]
        paired = found.differences["log_loss"]
        assert paired.value == pytest.approx(
            own.value - found.metrics["champion"]["log_loss"].value
        )
        assert paired.low <= paired.value <= paired.high
        assert paired.high - paired.low < (own.high - own.low) / 5

    def test_a_sample_of_the_rows_gives_narrower_intervals_around_the_exact_values(self) -> None:
        model = made(400, 2, 0)
        plan = Plan(samples=200, confidence=0.95, seed=0)
        (whole,) = intervals({"m": model}, plan).metrics.values()
        (part,) = intervals(
            {"m": model}, plan, {"m": {"roc_auc": 0.9}}, share=0.25
        ).metrics.values()
        assert part["roc_auc"].value == 0.9
        assert part["roc_auc"].low < 0.9 < part["roc_auc"].high
        wide, narrow = (m["roc_auc"].high - m["roc_auc"].low for m in (whole, part))
        assert narrow == pytest.approx(wide / 2)

    def test_what_is_not_defined_is_left_out(self) -> None:
        model = made(60, 3, 0)
        one_class = model.at(np.flatnonzero(model.labels == 0))
        plan = Plan(samples=100, confidence=0.95, seed=0)
        (found,) = intervals({"m": one_class}, plan).metrics.values()
        assert "accuracy" in found
        assert "roc_auc" not in found

    def test_many_classes_fit_in_time_and_memory(self) -> None:
        labels = np.arange(3000) % 1500
        probabilities = np.full((3000, 1500), 0.1 / 1499)
        probabilities[np.arange(3000), labels] = 0.9
        model = Classified(labels, probabilities, np.full(3000, -np.log(0.9)))
        plan = Plan(samples=100, confidence=0.95, seed=0)
        (found,) = intervals({"m": model}, plan).metrics.values()
        assert found["macro_f1"].value == 1
        assert "roc_auc" not in found
