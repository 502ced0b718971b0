"""Lets a model serve, or not: the gate's verdict, and the registry's alias moved accordingly."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard import registry
from trainyard.errors import JobError, nearest
from trainyard_airflow import gate, settings


class PromoteModelOperator(BaseOperator):
    """Make the evaluated model the champion of its registered name, if the gate lets it.

    A rejected model does not fail the task: the champion stays and later tasks use it. The XCom
    names the model that serves now:

        {"promoted": bool, "champion": {"name", "version", "uri"}, "challenger": {same},
         "mode": str, "verdict": [{"name", "passed", "measured", "wanted", "sentence"}],
         "summary": "one sentence: which model serves, and why"}

    Args:
        evaluation: the result of the evaluate job, such as `evaluate.output`.
        minimums: for each metric the worst value with which a model may serve.
        margins: for each metric by how much a model must beat the champion; a tie does not.
        mode: `enforce`, or `dry_run` to judge and change nothing.
    """

    template_fields: Sequence[str] = ("evaluation", "minimums", "margins", "mode")
    template_fields_renderers: ClassVar[dict[str, str]] = {"evaluation": "json"}

    def __init__(
        self,
        *,
        evaluation: Any,
        minimums: Mapping[str, Any] | None = None,
        margins: Mapping[str, Any] | None = None,
        mode: str = "enforce",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.evaluation = evaluation
        self.minimums = minimums or {}
        self.margins = margins or {}
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
        try:
            decision = self._apply(verdict)
        except JobError as error:
            raise AirflowException(str(error)) from None
        self.log.info("%s", decision["summary"])
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update(_event(decision))
        return decision

    def _judge(self) -> gate.Verdict:
        if self.mode not in gate.MODES:
            raise JobError(f"the gate's mode is {self.mode!r}.", nearest(self.mode, gate.MODES))
        verdict = gate.judge(
            self.evaluation, _numbers("minimum", self.minimums), _numbers("margin", self.margins)
        )
        uri = self.evaluation["model"]["uri"]
        self.log.info("The gate on %s:\n%s", uri, gate.table(verdict.rules))
        return verdict

    def _apply(self, verdict: gate.Verdict) -> dict[str, Any]:
        """Let the verdict come true, if the champion is still the one it was reached against."""
        model, rival = self.evaluation["model"], self.evaluation["champion"]
        name, version = model["name"], str(model["version"])
        against = str(rival["version"]) if rival else None
        champion = registry.find_alias(name, registry.CHAMPION)
        serving = champion.version if champion else None
        promoted, reason = verdict.passed, verdict.reason
        if serving == version:
            # An earlier try of this task set the alias and was lost before it could say so.
            promoted = True
        elif serving != against:
            judged = f"version {against}" if against else "no model"
            promoted, reason = False, f"the champion changed while it was judged against {judged}"
        elif promoted and self.mode == "enforce":
            serving = registry.promote(name, version).version
        if serving is None:
            raise AirflowFailException(str(_nothing_serves(name, version, reason, self.mode)))
        return {
            "promoted": serving == version,
            "champion": _model(name, serving),
            "challenger": _model(name, version),
            "mode": self.mode,
            "verdict": [dataclasses.asdict(rule) for rule in verdict.rules],
            "summary": _summary(name, version, serving, promoted, reason),
        }


def _summary(name: str, version: str, serving: str, promoted: bool, reason: str) -> str:
    if serving == version:
        return f"{name} version {version} serves: {reason}."
    if promoted:
        return f"{name} version {serving} stays (dry run); version {version} would serve: {reason}."
    return f"{name} version {serving} stays, version {version} was rejected: {reason}."


def _nothing_serves(name: str, version: str, reason: str, mode: str) -> JobError:
    if mode == "dry_run":
        return JobError(
            f"{name} has no champion, and a dry run promotes none, so that no model can serve.",
            "Set the gate's mode to enforce for the first model.",
        )
    return JobError(
        f"{name} has no champion, and version {version} was rejected: {reason}.",
        "Train a better model (more epochs, another learning rate) or lower the gate's minimum.",
    )


def _numbers(kind: str, bounds: Mapping[str, Any]) -> dict[str, float]:
    """Rendered bounds as numbers."""
    numbers = {}
    for metric, bound in bounds.items():
        try:
            numbers[metric] = float(bound)
        except (TypeError, ValueError):
            raise JobError(
                f"the gate's {kind} for {metric!r} is {bound!r}: it is no number.", "Give a number."
            ) from None
    return numbers


def _model(name: str, version: str) -> dict[str, str]:
    return {"name": name, "version": version, "uri": f"models:/{name}/{version}"}


def _event(decision: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "promoted": decision["promoted"],
        "champion": decision["champion"]["uri"],
        "challenger": decision["challenger"]["uri"],
        "summary": decision["summary"],
    }
