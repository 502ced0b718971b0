"""The gate's rules, by examples and over all numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.errors import JobError
from trainyard_airflow.gate import Rule, judge, table

numbers = st.floats(0, 1)
broken: st.SearchStrategy[Any] = st.sampled_from(
    [None, math.nan, math.inf, -math.inf, "0.9", True, [], {}]
)


def evaluation(metrics: dict[str, Any], champion: dict[str, Any] | None = None) -> dict[str, Any]:
    def shaped(values: dict[str, Any]) -> dict[str, Any]:
        return {name: {"value": value, "low": None, "high": None} for name, value in values.items()}

    return {
        "metrics": shaped(metrics),
        "champion": None if champion is None else {"metrics": shaped(champion)},
    }


@given(numbers, numbers)
def test_a_minimum_is_inclusive(value: float, bound: float) -> None:
    assert judge(evaluation({"accuracy": value}), {"accuracy": bound}, {}).passed is (
        value >= bound
    )


@given(numbers, numbers)
def test_of_a_loss_less_is_better(value: float, bound: float) -> None:
    judged = evaluation({"log_loss": value})
    assert judge(judged, {"log_loss": bound}, {}).passed is (value <= bound)


@given(numbers)
def test_a_tie_keeps_the_champion(value: float) -> None:
    for metric in ("accuracy", "log_loss"):
        assert not judge(evaluation({metric: value}, {metric: value}), {}, {metric: 0.0}).passed


@given(numbers, numbers, st.floats(0, 0.5))
def test_of_two_models_at_most_one_beats_the_other(a: float, b: float, margin: float) -> None:
    forth = judge(evaluation({"accuracy": a}, {"accuracy": b}), {}, {"accuracy": margin}).passed
    back = judge(evaluation({"accuracy": b}, {"accuracy": a}), {}, {"accuracy": margin}).passed
    assert not (forth and back)
    assert forth is (round(a - b, 12) > margin)


@given(broken, numbers, st.booleans())
def test_what_is_no_number_never_passes(value: Any, other: float, is_champions: bool) -> None:
    own, champions = (other, value) if is_champions else (value, other)
    judged = evaluation({"accuracy": own}, {"accuracy": champions})
    assert not judge(judged, {}, {"accuracy": 0.0}).passed
    if not is_champions:
        assert not judge(judged, {"accuracy": 0.0}, {}).passed
        assert not judge(evaluation({"accuracy": own}), {}, {"accuracy": 0.0}).passed


def test_a_margin_is_exact_in_decimal() -> None:
    judged = evaluation({"accuracy": 0.951}, {"accuracy": 0.95})
    assert not judge(judged, {}, {"accuracy": 0.001}).passed
    assert judge(judged, {}, {"accuracy": 0.0009}).passed


def test_a_missing_metric_fails_and_is_said_to_be_missing() -> None:
    verdict = judge(evaluation({}), {"recall": 0.1}, {})
    assert not verdict.passed
    assert verdict.reason == "its recall of no number is not >= 0.1"


def test_every_rule_must_hold() -> None:
    judged = evaluation({"accuracy": 0.9, "log_loss": 0.3}, {"accuracy": 0.8, "log_loss": 0.2})
    assert judge(judged, {"accuracy": 0.85}, {"accuracy": 0.0}).passed
    verdict = judge(judged, {"accuracy": 0.85}, {"accuracy": 0.0, "log_loss": 0.0})
    assert [rule.passed for rule in verdict.rules] == [True, True, False]
    assert "log_loss" in verdict.reason
    assert "accuracy" not in verdict.reason


def test_without_a_champion_only_the_minimums_count() -> None:
    assert judge(evaluation({"accuracy": 0.9}), {"accuracy": 0.85}, {"accuracy": 0.5}).passed


@pytest.mark.parametrize(
    ("minimums", "margins"),
    [
        ({}, {}),
        ({"accuracy": math.nan}, {}),
        ({}, {"accuracy": math.inf}),
        ({}, {"accuracy": -0.1}),
    ],
)
def test_a_gate_without_a_clear_rule_is_refused(
    minimums: dict[str, float], margins: dict[str, float]
) -> None:
    with pytest.raises(JobError, match="gate"):
        judge(evaluation({"accuracy": 1.0}), minimums, margins)


def test_the_table_shows_each_rule() -> None:
    rules = [
        Rule(name="accuracy", passed=True, measured=0.95, wanted=">= 0.9", sentence=""),
        Rule(name="recall", passed=False, measured=None, wanted=">= 0.5", sentence=""),
    ]
    assert table(rules).splitlines() == [
        "rule      verdict  measured  wanted",
        "accuracy  pass     0.95      >= 0.9",
        "recall    FAIL     none      >= 0.5",
    ]
