"""Decides whether a model may serve: rules on its metrics, alone and against the champion's.

Both models must have been scored on the same rows; `Gate.judge` takes the result of the evaluate
job, which does that. A metric that is missing or no finite number passes no rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from trainyard.errors import JobError, nearest

MODES = ("enforce", "dry_run")
"""`dry_run` judges and reports, and promotes nothing."""

SMALLER_IS_BETTER = frozenset({"log_loss", "brier", "calibration_error", "mae", "mse", "rmse"})
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
    """Every rule applied to one challenger; it passes when all of them hold.

    Attributes:
        rules: the rules.
        metric: the one that tells most of a model here: of the first margin, or else bound.
    """

    rules: tuple[Rule, ...]
    metric: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the challenger may serve."""
        return bool(self.rules) and all(rule.passed for rule in self.rules)

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        failed = [rule.sentence for rule in self.rules if not rule.passed]
        return "; ".join(failed or [rule.sentence for rule in self.rules])


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a model must be in order to serve.

    Attributes:
        minimums: the least value of metrics of which more is better.
        maximums: the greatest value of metrics of which less is better, such as log_loss.
        margins: by how much a metric must be better than the champion's. With a margin of 0 it must
            still be better: a tie keeps the champion.
        paired: judge the margins by the unfavourable end of the difference's interval, which comes
            from a bootstrap of the same rows for both models, instead of by its value.
        slices: by column and metric the worst value that any value of the column may have.
        slice_rows: rows below which a slice is too small to be judged.

    Raises:
        JobError: there is no rule, or a bound cannot be meant.
    """

    minimums: Mapping[str, float] = field(default_factory=dict)
    maximums: Mapping[str, float] = field(default_factory=dict)
    margins: Mapping[str, float] = field(default_factory=dict)
    paired: bool = False
    slices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    slice_rows: int = 30

    def __post_init__(self) -> None:
        if not (self.minimums or self.maximums or self.margins or self.slices):
            raise JobError("the gate has no rule.", "Give it a minimum, a maximum or a margin.")
        by_slice = {
            f"{metric} by {column}": bound
            for column, floors in self.slices.items()
            for metric, bound in floors.items()
        }
        everything = (self.minimums, self.maximums, self.margins, by_slice)
        for name, bound in (pair for bounds in everything for pair in bounds.items()):
            if _value({name: bound}, name) is None:
                raise JobError(
                    f"the gate's bound for {name!r} is {bound!r}.", "Give a finite number."
                )
        for name, margin in self.margins.items():
            if margin < 0:
                raise JobError(f"the gate's margin for {name!r} is {margin}.", "Give 0 or more.")
        for name in self.minimums:
            if name in SMALLER_IS_BETTER:
                raise JobError(
                    f"the gate has a minimum for {name!r}, of which less is better.",
                    "Give it as a maximum.",
                )
        for name in self.maximums:
            if name not in SMALLER_IS_BETTER:
                raise JobError(
                    f"the gate has a maximum for {name!r}, of which more is better.",
                    "Give it as a minimum.",
                )

    def judge(self, evaluation: Mapping[str, Any]) -> Verdict:
        """Apply the rules to the result of an evaluate job.

        Args:
            evaluation: the job's result: `metrics`, `champion` (None before the first one), and
                `differences` and `slices` where rules need them.

        Raises:
            JobError: it is no such result, or has no such metric or slices.
        """
        try:
            return self._judge(evaluation)
        except (AttributeError, KeyError, TypeError) as error:
            raise JobError(
                "what the gate was given is no result of an evaluate job:"
                f" {type(error).__name__}: {error}.",
                "Give it evaluate.output; is evaluate upstream, and did it succeed?",
            ) from error

    def _judge(self, evaluation: Mapping[str, Any]) -> Verdict:
        metrics, champion = evaluation["metrics"], evaluation["champion"]
        for name in (*self.minimums, *self.maximums, *self.margins):
            if name not in metrics:
                raise JobError(
                    f"the gate has a rule for {name!r}, which the evaluation does not measure.",
                    nearest(name, metrics),
                )
        rules = [
            _bound_rule(name, _value(metrics, name), name, bound)
            for name, bound in (*self.minimums.items(), *self.maximums.items())
        ]
        if champion is not None:
            differences = evaluation.get("differences", {})
            for name, margin in self.margins.items():
                rules.append(
                    _paired_rule(differences, name, margin)
                    if self.paired
                    else _margin_rule(metrics, champion["metrics"], name, margin)
                )
        for column, floors in self.slices.items():
            for metric, bound in floors.items():
                rules += self._slice_rules(evaluation.get("slices", {}), column, metric, bound)
        if not rules:
            rules = [_first_rule(metrics, name) for name in self.margins]
        of_slices = (metric for floors in self.slices.values() for metric in floors)
        first = next(iter((*self.margins, *self.minimums, *self.maximums, *of_slices)), None)
        return Verdict(rules=tuple(rules), metric=first)

    def _slice_rules(
        self, slices: Mapping[str, Any], column: str, metric: str, bound: float
    ) -> Iterator[Rule]:
        if column not in slices:
            fix = nearest(column, slices) if slices else f"Evaluate with slices=({column!r},)."
            raise JobError(
                f"the gate has bounds by {column!r}, by which nothing was evaluated.", fix
            )
        large = {v: s for v, s in slices[column].items() if s["rows"] >= self.slice_rows}
        for value, part in large.items():
            name = f"{metric} where {column} is {value}"
            yield _bound_rule(metric, _value(part["metrics"], metric), name, bound)
        if not large:
            yield Rule(
                name=f"{metric} by {column}",
                passed=False,
                measured=None,
                wanted=f"a slice of {self.slice_rows} rows",
                sentence=f"no value of {column} has the {self.slice_rows} rows that are needed to"
                f" judge its {metric}",
            )


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


def _bound_rule(metric: str, value: float | None, name: str, bound: float) -> Rule:
    less = metric in SMALLER_IS_BETTER
    wanted = f"{'<=' if less else '>='} {bound:g}"
    passed = value is not None and (value <= bound if less else value >= bound)
    return Rule(
        name=name,
        passed=passed,
        measured=value,
        wanted=wanted,
        sentence=f"its {name} of {_text(value)} {'meets' if passed else 'is not'} {wanted}"
        if name == metric
        else f"its {name} is {_text(value)}, which {'meets' if passed else 'is not'} {wanted}",
    )


def _margin_rule(
    metrics: Mapping[str, Any], champion: Mapping[str, Any], name: str, margin: float
) -> Rule:
    value, other = _value(metrics, name), _value(champion, name)
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


def _paired_rule(differences: Mapping[str, Any], name: str, margin: float) -> Rule:
    less = name in SMALLER_IS_BETTER
    end = _value({name: differences.get(name, {}).get("high" if less else "low")}, name)
    gain = None if end is None else round(-end if less else end, 12)
    passed = gain is not None and gain > margin
    return Rule(
        name=f"{name} surely against champion",
        passed=passed,
        measured=gain,
        wanted=f"better by more than {margin:g}",
        sentence=f"the gain in {name} over the champion is {_text(gain)} at the unfavourable end of"
        f" its interval, which is {'' if passed else 'not '}more than {margin:g}",
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
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    with suppress(OverflowError):  # of a whole number of hundreds of digits
        return float(value) if math.isfinite(value) else None
    return None


def _text(value: float | None) -> str:
    return "no number" if value is None else f"{value:.4g}"
