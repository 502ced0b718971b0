"""The gate's rules, by examples and over all numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.errors import JobError
from trainyard_airflow.gate import Gate, Rule, Verdict, table

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


def judge(judged: dict[str, Any], minimums: dict[str, float], margins: dict[str, float]) -> Verdict:
    return Gate(minimums=minimums, margins=margins).judge(judged)


@given(numbers, numbers)
def test_a_minimum_is_inclusive(value: float, bound: float) -> None:
    assert judge(evaluation({"accuracy": value}), {"accuracy": bound}, {}).passed is (
        value >= bound
    )


@given(numbers, numbers)
def test_of_a_loss_less_is_better(value: float, bound: float) -> None:
    judged = evaluation({"log_loss": value})
    assert Gate(maximums={"log_loss": bound}).judge(judged).passed is (value <= bound)


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


@pytest.mark.parametrize("rules", [({"recall": 0.1}, {}), ({}, {"recall": 0.0})])
def test_a_rule_for_what_is_not_measured_is_an_error(rules: tuple[Any, Any]) -> None:
    measured = evaluation({"rmse": 3.0, "r2": 0.4})
    with pytest.raises(JobError, match=r"a rule for 'recall', which.*Use one of: r2, rmse\."):
        judge(measured, *rules)


def test_a_metric_that_is_no_number_fails() -> None:
    verdict = judge(evaluation({"recall": None}), {"recall": 0.1}, {})
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
    ("rules", "message"),
    [
        ({}, "the gate has no rule"),
        ({"minimums": {"accuracy": math.nan}}, "bound for 'accuracy' is nan"),
        ({"minimums": {"accuracy": "0.9"}}, "bound for 'accuracy' is '0.9'"),
        ({"minimums": {"accuracy": 10**400}}, "bound for 'accuracy' is 1000"),
        ({"margins": {"accuracy": math.inf}}, "bound for 'accuracy' is inf"),
        ({"margins": {"accuracy": -0.1}}, "margin for 'accuracy' is -0.1"),
        ({"minimums": {"rmse": 1.0}}, "minimum for 'rmse', of which less is better"),
        ({"maximums": {"recall": 1.0}}, "maximum for 'recall', of which more is better"),
        ({"slices": {"shop": {"recall": math.nan}}}, "bound for 'recall by shop' is nan"),
    ],
)
def test_a_gate_without_a_clear_rule_is_refused(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message):
        Gate(**rules)


class TestPaired:
    """Margins by the unfavourable end of the difference's interval."""

    def verdict(self, low: Any, high: Any, margin: float = 0.0, metric: str = "recall") -> Verdict:
        judged = evaluation({metric: 0.9}, {metric: 0.8})
        judged["differences"] = {metric: {"value": 0.1, "low": low, "high": high}}
        return Gate(margins={metric: margin}, paired=True).judge(judged)

    @given(st.floats(-1, 1), st.floats(0, 0.5))
    def test_the_low_end_must_beat_the_margin(self, low: float, margin: float) -> None:
        assert self.verdict(low, 1.0, margin).passed is (round(low, 12) > margin)

    @given(st.floats(-1, 1), st.floats(0, 0.5))
    def test_of_a_loss_the_high_end_must(self, high: float, margin: float) -> None:
        assert self.verdict(-1.0, high, margin, "rmse").passed is (round(-high, 12) > margin)

    @given(broken)
    def test_what_is_no_number_never_passes(self, low: Any) -> None:
        assert not self.verdict(low, 1.0).passed

    def test_a_better_value_alone_is_not_enough(self) -> None:
        assert not self.verdict(-0.01, 0.2).passed
        judged = evaluation({"recall": 0.9}, {"recall": 0.8})
        assert judge(judged, {}, {"recall": 0.0}).passed
        assert not Gate(margins={"recall": 0.0}, paired=True).judge(judged).passed


class TestSlices:
    """Bounds for each value of a column."""

    def judged(self, **rows: tuple[int, Any]) -> dict[str, Any]:
        values = {
            name: {"rows": count, "metrics": {"recall": recall, "log_loss": recall}}
            for name, (count, recall) in rows.items()
        }
        return {**evaluation({"recall": 0.95}), "slices": {"carrier": values}}

    def test_each_large_slice_must_reach_it(self) -> None:
        gate = Gate(minimums={"recall": 0.9}, slices={"carrier": {"recall": 0.8}})
        assert gate.judge(self.judged(AA=(500, 0.9), UA=(40, 0.8), XX=(29, 0.1))).passed
        verdict = gate.judge(self.judged(AA=(500, 0.9), UA=(40, 0.79)))
        assert not verdict.passed
        assert verdict.reason == "its recall where carrier is UA is 0.79, which is not >= 0.8"

    def test_of_a_loss_each_must_be_below_it(self) -> None:
        gate = Gate(slices={"carrier": {"log_loss": 0.5}})
        assert gate.judge(self.judged(AA=(500, 0.4))).passed
        assert not gate.judge(self.judged(AA=(500, 0.6))).passed

    @given(broken)
    def test_what_is_no_number_never_passes(self, value: Any) -> None:
        gate = Gate(slices={"carrier": {"recall": 0.0}})
        assert not gate.judge(self.judged(AA=(500, value))).passed

    def test_slices_that_are_all_too_small_do_not_pass(self) -> None:
        verdict = Gate(slices={"carrier": {"recall": 0.1}}).judge(self.judged(XX=(29, 1.0)))
        assert not verdict.passed
        assert "no value of carrier has the 30 rows" in verdict.reason

    def test_a_column_that_was_not_evaluated_is_refused(self) -> None:
        with pytest.raises(JobError, match=r"bounds by 'carier'.* Did you mean 'carrier'"):
            Gate(slices={"carier": {"recall": 0.1}}).judge(self.judged(AA=(50, 1.0)))
        with pytest.raises(JobError, match=r"Evaluate with slices=\('shop',\)"):
            Gate(slices={"shop": {"recall": 0.1}}).judge(evaluation({"recall": 1.0}))


@pytest.mark.parametrize(
    ("rules", "metric"),
    [
        ({"minimums": {"f1": 0}, "margins": {"roc_auc": 0, "accuracy": 0}}, "roc_auc"),
        ({"minimums": {"f1": 0}, "maximums": {"log_loss": 1}}, "f1"),
        ({"maximums": {"log_loss": 1}}, "log_loss"),
        ({"slices": {"sex": {"f1": 0.5}}}, "f1"),
    ],
)
def test_the_metric_of_a_verdict_is_its_first_margins_or_else_bounds(
    rules: dict[str, Any], metric: str
) -> None:
    measured = {"f1": 0.5, "roc_auc": 0.5, "accuracy": 0.5, "log_loss": 0.5}
    judged = {**evaluation(measured), "slices": {"sex": {}}}
    assert Gate(**rules).judge(judged).metric == metric


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


@pytest.mark.parametrize(
    "odd", [None, "None", {}, {"metrics": None, "champion": None}, {"metrics": {"auc": 1}}]
)
def test_what_is_no_evaluation_is_named(odd: Any) -> None:
    with pytest.raises(JobError, match="is no result of an evaluate job"):
        Gate(minimums={"auc": 0.5}).judge(odd)
