"""Decides whether a model may serve: rules on its metrics, alone and against the champion's.

Both models must have been scored on the same rows; `judge` takes the result of the evaluate job,
which does that. Nothing here needs Airflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.errors import JobError

MODES = ("enforce", "dry_run")
"""`dry_run` judges and reports, and promotes nothing."""

SMALLER_IS_BETTER = frozenset({"log_loss", "brier", "mae", "mse", "rmse"})
"""Metrics of which less is better; of every other, more is."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, as it was applied.

    Attributes:
        name: what is judged.
        passed: whether the challenger meets it.
        measured: the figure that was judged; None where there is none.
        wanted: what it had to be.
        sentence: the verdict in words.
    """

    name: str
    passed: bool
    measured: float | None
    wanted: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Every rule applied to one challenger; it passes when all of them hold."""

    rules: tuple[Rule, ...]

    @property
    def passed(self) -> bool:
        """Whether the challenger may serve."""
        return bool(self.rules) and all(rule.passed for rule in self.rules)

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        failed = [rule.sentence for rule in self.rules if not rule.passed]
        return "; ".join(failed or [rule.sentence for rule in self.rules])


def judge(
    evaluation: Mapping[str, Any], minimums: Mapping[str, float], margins: Mapping[str, float]
) -> Verdict:
    """Apply the gate's rules to the result of an evaluate job.

    Args:
        evaluation: the job's result: `metrics`, `champion` (None before the first one) and `rows`.
        minimums: for each metric the worst value with which a model may serve.
        margins: for each metric by how much the challenger must be better than the champion. With a
            margin of 0 it must still be better: a tie keeps the champion.

    Raises:
        JobError: there is no rule, or a bound is no finite number, or a margin is negative.
    """
    _check_bounds(minimums, margins)
    metrics, champion = evaluation["metrics"], evaluation["champion"]
    rules = [_minimum_rule(metrics, name, bound) for name, bound in minimums.items()]
    if champion is not None:
        rules += [_margin_rule(metrics, champion, name, by) for name, by in margins.items()]
    elif not minimums:
        rules = [_first_rule(metrics, name) for name in margins]
    return Verdict(rules=tuple(rules))


def table(rules: Iterable[Rule]) -> str:
    """The verdict rule by rule, for a log."""
    rows = [("rule", "verdict", "measured", "wanted")]
    for rule in rules:
        measured = "none" if rule.measured is None else f"{rule.measured:.6g}"
        rows.append((rule.name, "pass" if rule.passed else "FAIL", measured, rule.wanted))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows
    )


def _minimum_rule(metrics: Mapping[str, Any], name: str, bound: float) -> Rule:
    value = _value(metrics, name)
    less = name in SMALLER_IS_BETTER
    sign = "<=" if less else ">="
    passed = value is not None and (value <= bound if less else value >= bound)
    return Rule(
        name=name,
        passed=passed,
        measured=value,
        wanted=f"{sign} {bound:g}",
        sentence=f"its {name} of {_text(value)} "
        + (f"meets {sign} {bound:g}" if passed else f"is not {sign} {bound:g}"),
    )


def _margin_rule(
    metrics: Mapping[str, Any], champion: Mapping[str, Any], name: str, margin: float
) -> Rule:
    value, other = _value(metrics, name), _value(champion["metrics"], name)
    gain = None
    if value is not None and other is not None:
        # Rounded, since 0.951 - 0.95 is a little more than 0.001 in binary.
        gain = round(other - value if name in SMALLER_IS_BETTER else value - other, 12)
    passed = gain is not None and gain > margin
    tied = ", a tie" if gain == 0 else ""
    return Rule(
        name=f"{name} against champion",
        passed=passed,
        measured=gain,
        wanted=f"better by more than {margin:g}",
        sentence=f"its {name} of {_text(value)} is "
        + ("" if passed else "not ")
        + f"better than the champion's {_text(other)} by more than {margin:g}{tied}",
    )


def _first_rule(metrics: Mapping[str, Any], name: str) -> Rule:
    value = _value(metrics, name)
    return Rule(
        name=name,
        passed=value is not None,
        measured=value,
        wanted="a number",
        sentence=f"its {name} is {_text(value)} and there is no champion to compare with",
    )


def _value(metrics: Mapping[str, Any], name: str) -> float | None:
    """A metric's value; None, which passes no rule, where it is missing or no finite number."""
    value = metrics.get(name)
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _check_bounds(minimums: Mapping[str, float], margins: Mapping[str, float]) -> None:
    if not minimums and not margins:
        raise JobError("the gate has no rule.", "Give it a minimum or a margin.")
    for name, bound in [*minimums.items(), *margins.items()]:
        if not math.isfinite(bound):
            raise JobError(f"the gate's bound for {name!r} is {bound}.", "Give a finite number.")
    for name, margin in margins.items():
        if margin < 0:
            raise JobError(f"the gate's margin for {name!r} is {margin}.", "Give 0 or more.")


def _text(value: float | None) -> str:
    return "no number" if value is None else f"{value:.4g}"
