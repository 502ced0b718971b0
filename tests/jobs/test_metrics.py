"""Metrics are scikit-learn's, and intervals hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from trainyard.metrics import Metric, macro, mean, wilson


@given(
    st.integers(2, 6).flatmap(
        lambda k: st.lists(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)), min_size=1)
    )
)
def test_macro_metrics_are_scikit_learns(rows: list[tuple[int, int]]) -> None:
    labels, predictions = np.array(rows).T
    classes = int(max(labels.max(), predictions.max())) + 1
    confusion = confusion_matrix(labels, predictions, labels=range(classes))
    found = macro(confusion, 0.95)
    precision, recall, f1, _ = precision_recall_fscore_support(
        labels, predictions, labels=np.unique(labels), average="macro", zero_division=0
    )
    assert found["macro_precision"].value == pytest.approx(precision)
    assert found["macro_recall"].value == pytest.approx(recall)
    assert found["macro_f1"].value == pytest.approx(f1)
    assert all(0 <= m.low <= m.value <= m.high <= 1 for m in found.values())


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


def test_the_bootstrap_covers_the_truth() -> None:
    rng = np.random.default_rng(7)
    truth = np.array([[0.4, 0.1], [0.05, 0.45]])
    expected = (0.4 / 0.5 + 0.45 / 0.5) / 2
    held = 0
    for _ in range(60):
        found = macro(rng.multinomial(400, truth.ravel()).reshape(2, 2), 0.9)["macro_recall"]
        held += found.low <= expected <= found.high
    assert 46 <= held <= 60


def test_the_bootstrap_is_seeded() -> None:
    confusion = np.array([[40, 3], [5, 52]])
    assert macro(confusion, 0.95) == macro(confusion, 0.95)
    assert macro(confusion, 0.95) != macro(confusion, 0.95, seed=1)


def test_a_mean_of_equal_rows_has_no_spread() -> None:
    assert mean(0.5, 0.0, 10, 0.95) == Metric(value=0.5, low=0.5, high=0.5)


def test_many_classes_fit_in_memory() -> None:
    confusion = np.eye(1500, dtype=np.int64) * 3
    confusion[0, 1] = 5
    assert macro(confusion, 0.95)["macro_f1"].value > 0.99
