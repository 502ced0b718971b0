"""Lets another version of a model serve, on a person's word."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException

from trainyard import champions
from trainyard.errors import JobError
from trainyard_airflow import settings
from trainyard_airflow.outcome import failed
from trainyard_airflow.pools import PROMOTION_POOL


class RollbackModelOperator(BaseOperator):
    """Make a version of a registered model its champion, and record who wanted it and why.

    It is the promotion without the gate: in the same pool, with the same check and record. The XCom
    is `{"champion": {"name", "version", "uri"}, "before": {same}, "who", "why", "summary"}`.

    Args:
        model_name: the registered model.
        version: the version that is to serve; empty for the one that served before.
        who: the person who decided.
        why: the reason.
    """

    template_fields: Sequence[str] = ("model_name", "version", "who", "why")

    def __init__(
        self,
        *,
        model_name: str,
        version: str | None = None,
        who: str,
        why: str,
        pool: str = PROMOTION_POOL,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool=pool, **kwargs)
        self.model_name = model_name
        self.version = version
        self.who = who
        self.why = why

    def execute(self, context: Context) -> dict[str, Any]:
        """Let the version serve.

        Raises:
            AirflowFailException: who or why is missing, or there is no such version.
            AirflowException: the registry does not answer; a retry may find it well.
        """
        try:
            os.environ["MLFLOW_TRACKING_URI"] = settings.tracking_uri()
            rolled = self._roll_back()
        except JobError as error:
            raise failed(error) from None
        except OSError as error:
            raise AirflowException(str(error)) from None
        self.log.info("%s", rolled["summary"])
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                extra = {k: rolled[k] for k in ("who", "why", "summary")}
                extra |= {k: rolled[k]["uri"] for k in ("champion", "before")}
                context["outlet_events"][outlet].extra.update(extra)
        return rolled

    def _roll_back(self) -> dict[str, Any]:
        for name, text in (("who", self.who), ("why", self.why)):
            if not text.strip():
                raise JobError(
                    f"param {name!r} is empty.", "A rollback names who wants it and why."
                )
        now = champions.serving(self.model_name)
        if now is None:
            raise JobError(
                f"param 'model_name' is {self.model_name!r}: no version of it serves.",
                "Check the name; the first version is promoted by its pipeline.",
            )
        version = (self.version or "").strip() or champions.previous(self.model_name)
        if version is None:
            raise JobError(
                f"it is not recorded which version of {self.model_name} served before"
                f" {now.version}.",
                "Give param 'version'.",
            )
        change = champions.promote(
            self.model_name, version, known=now.version, who=self.who, why=self.why
        )
        name, before, champion = self.model_name, now.version, change.champion.version
        done = "already serves" if change.before is None else f"serves instead of version {before}"
        return {
            "champion": _model(name, champion),
            "before": _model(name, before),
            "who": self.who,
            "why": self.why,
            "summary": f"{name} version {champion} {done}, by {self.who}: {self.why}",
        }


def _model(name: str, version: str) -> dict[str, str]:
    return {"name": name, "version": version, "uri": f"models:/{name}/{version}"}
