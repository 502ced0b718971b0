"""Lets a model serve, or not: the gate's verdict, and the registry's alias moved accordingly."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard import champions, registry, store
from trainyard.errors import JobError, nearest
from trainyard.layout import VERDICT, join
from trainyard_airflow import gate, settings
from trainyard_airflow.pools import PROMOTION_POOL


class PromoteModelOperator(BaseOperator):
    """Make the evaluated model the champion of its registered name, if the gate lets it.

    A rejected model does not fail the task: the champion stays and later tasks use it. The XCom
    names the model that serves now:

        {"promoted": bool, "champion": {"name", "version", "uri"}, "challenger": {same},
         "mode": str, "verdict": [{"name", "passed", "measured", "wanted", "sentence"}],
         "metric": "the first that it was judged by",
         "summary": "one sentence: which model serves, and why"}

    The same is written as verdict.json beside the evaluation's report, and kept in the registry
    with the run and the version. The task runs in a pool of one slot, so that the champion it was
    judged against is still the one that it replaces.

    Args:
        evaluation: the result of the evaluate job, such as `evaluate.output`.
        minimums: for each metric of which more is better the least with which a model may serve.
        maximums: for each metric of which less is better the most, such as of log_loss.
        margins: for each metric by how much a model must beat the champion; a tie does not.
        paired: whether a margin must hold at the unfavourable end of the gain's interval.
        slices: by column and metric the worst value that any part of the rows may have.
        slice_rows: rows below which a part is too small to be judged.
        mode: `enforce`, or `dry_run` to judge and change nothing.

    A bound of None, or a template that gives None, is no rule.
    """

    template_fields: Sequence[str] = (
        "evaluation",
        "minimums",
        "maximums",
        "margins",
        "paired",
        "slices",
        "slice_rows",
        "mode",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"evaluation": "json"}

    def __init__(
        self,
        *,
        evaluation: Any,
        minimums: Mapping[str, Any] | None = None,
        maximums: Mapping[str, Any] | None = None,
        margins: Mapping[str, Any] | None = None,
        paired: Any = False,
        slices: Mapping[str, Mapping[str, Any]] | None = None,
        slice_rows: Any = 30,
        mode: str = "enforce",
        pool: str = PROMOTION_POOL,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool=pool, **kwargs)
        self.evaluation = evaluation
        self.minimums = minimums or {}
        self.maximums = maximums or {}
        self.margins = margins or {}
        self.paired = paired
        self.slices = slices or {}
        self.slice_rows = slice_rows
        self.mode = mode

    def execute(self, context: Context) -> dict[str, Any]:
        """Judge, promote, and say which model serves.

        Raises:
            AirflowFailException: the gate cannot be as it is set, or no model can serve: there is
                no champion and this one is rejected.
            AirflowException: the registry does not do what it should; a retry may find it well.
        """
        try:
            verdict = self._judge()
            os.environ["MLFLOW_TRACKING_URI"] = settings.tracking_uri()
        except JobError as error:
            raise AirflowFailException(str(error)) from None
        ti = context["ti"]
        try:
            decision = self._apply(verdict, who=f"{ti.dag_id} {ti.run_id}")
            self._record(decision)
        except (JobError, OSError) as error:
            raise AirflowException(str(error)) from None
        self.log.info("%s", decision["summary"])
        if decision["champion"] is None:
            raise AirflowFailException(str(_nothing_serves(decision)))
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update(_event(decision))
        return decision

    def _judge(self) -> gate.Verdict:
        if self.mode not in gate.MODES:
            raise JobError(f"the gate's mode is {self.mode!r}.", nearest(self.mode, gate.MODES))
        rules = gate.Gate(
            minimums=_numbers("minimum", self.minimums),
            maximums=_numbers("maximum", self.maximums),
            margins=_numbers("margin", self.margins),
            paired=_is_true("paired", self.paired),
            slices={
                name: _numbers(f"{name} bound", floors)
                for name, floors in _mapping("slices", self.slices).items()
            },
            slice_rows=_rows(self.slice_rows),
        )
        verdict = rules.judge(self.evaluation)
        uri = self.evaluation["model"]["uri"]
        self.log.info("The gate on %s:\n%s", uri, gate.table(verdict.rules))
        return verdict

    def _apply(self, verdict: gate.Verdict, who: str) -> dict[str, Any]:
        """Let the verdict come true, if the champion is still the one it was reached against."""
        model, rival = self.evaluation["model"], self.evaluation["champion"]
        name, version = model["name"], str(model["version"])
        known = str(rival["version"]) if rival else None
        champion = champions.serving(name)
        now = champion.version if champion else None
        passed, reason = verdict.passed, verdict.reason
        if now == version:
            # An earlier try of this task set the alias and was lost before it could say so.
            passed = True
        elif now != known:
            judged = f"version {known}" if known else "no model"
            passed, reason = False, f"the champion changed while it was judged against {judged}"
        elif passed and self.mode == "enforce":
            change = champions.promote(name, version, known=known, who=who, why=reason)
            now = change.champion.version
        return {
            "promoted": now == version,
            "champion": _model(name, now) if now else None,
            "challenger": _model(name, version),
            "mode": self.mode,
            "verdict": [dataclasses.asdict(rule) for rule in verdict.rules],
            "metric": verdict.metric,
            "summary": _summary(name, version, now, passed, reason),
        }

    def _record(self, decision: Mapping[str, Any]) -> None:
        challenger = decision["challenger"]
        judged = registry.resolve(challenger["uri"])
        champions.record_verdict(judged, decision["summary"], decision)
        if report := self.evaluation.get("outputs", {}).get("report"):
            store.write_json(join(report, VERDICT), decision)


def _summary(name: str, version: str, now: str | None, passed: bool, reason: str) -> str:
    if now == version:
        return f"{name} version {version} serves: {reason}."
    if now is None:
        return f"{name} has no champion; version {version} does not serve: {reason}."
    if passed:
        return f"{name} version {now} stays (dry run); version {version} would serve: {reason}."
    return f"{name} version {now} stays, version {version} was rejected: {reason}."


def _nothing_serves(decision: Mapping[str, Any]) -> JobError:
    name, version = decision["challenger"]["name"], decision["challenger"]["version"]
    if decision["mode"] == "dry_run":
        return JobError(
            f"{name} has no champion, and a dry run promotes none, so that no model can serve.",
            "Set the gate's mode to enforce for the first model.",
        )
    failed = "; ".join(rule["sentence"] for rule in decision["verdict"] if not rule["passed"])
    return JobError(
        f"{name} has no champion, and version {version} was rejected: {failed or 'no rule held'}.",
        "Train a better model (more epochs, another learning rate) or lower the gate's minimum.",
    )


def _numbers(kind: str, bounds: Mapping[str, Any]) -> dict[str, float]:
    """Rendered bounds as numbers, without those that are none."""
    named = _mapping(kind, bounds)
    given = {metric: bound for metric, bound in named.items() if bound not in (None, "None", "")}
    return {metric: _number(kind, metric, bound) for metric, bound in given.items()}


def _mapping(kind: str, value: Any) -> Mapping[str, Any]:
    """What a template may have made a text of."""
    if not isinstance(value, Mapping):
        raise JobError(
            f"the gate's {kind} is {value!r}: it is no mapping.",
            'Give one by metric, such as {"accuracy": 0.9}; templates belong into its values.',
        )
    return value


def _rows(value: Any) -> int:
    rows = _number("slice_rows", "", value)
    if not rows >= 1 or rows % 1:
        raise JobError(f"the gate's slice_rows is {value!r}.", "Give 1, 2 or more.")
    return int(rows)


def _number(kind: str, metric: str, bound: Any) -> float:
    try:
        if isinstance(bound, bool):
            raise TypeError
        return float(bound)
    except (OverflowError, TypeError, ValueError):
        what = f"{kind} for {metric!r}" if metric else kind
        raise JobError(
            f"the gate's {what} is {bound!r}: it is no number.", "Give a number."
        ) from None


def _is_true(kind: str, value: Any) -> bool:
    """A rendered switch: templates give texts."""
    known = {"true": True, "false": False}
    if str(value).lower() not in known:
        raise JobError(f"the gate's {kind} is {value!r}.", "Give true or false.")
    return known[str(value).lower()]


def _model(name: str, version: str) -> dict[str, str]:
    return {"name": name, "version": version, "uri": f"models:/{name}/{version}"}


def _event(decision: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "promoted": decision["promoted"],
        "champion": decision["champion"]["uri"],
        "challenger": decision["challenger"]["uri"],
        "summary": decision["summary"],
    }
