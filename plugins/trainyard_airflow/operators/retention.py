"""Removes runs, checkpoints and registered versions that nothing needs any more."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard.errors import JobError
from trainyard_airflow import settings
from trainyard_airflow.pools import PROMOTION_POOL


class CollectGarbageOperator(BaseOperator):
    """Apply the retention of `trainyard.retention` to the store.

    It runs in the pool of promotions, so that no version is promoted while it goes. The XCom is
    `{"dry_run", "runs", "checkpoints", "versions", "kept"}`: what went or would go, as counts, and
    why each run stayed that was old enough to go.

    Args:
        keep_days: age in days above which a run goes.
        keep_runs: runs of each DAG above which the older ones go.
        checkpoint_days: age in days above which the checkpoints of finished trainings go.
        only_list: list what would go and remove nothing.
    """

    template_fields: Sequence[str] = ("keep_days", "keep_runs", "checkpoint_days", "only_list")

    def __init__(
        self,
        *,
        keep_days: Any,
        keep_runs: Any,
        checkpoint_days: Any,
        only_list: Any = False,
        pool: str = PROMOTION_POOL,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool=pool, **kwargs)
        self.keep_days = keep_days
        self.keep_runs = keep_runs
        self.checkpoint_days = checkpoint_days
        self.only_list = only_list

    def execute(self, context: Context) -> dict[str, Any]:
        """Remove, or list, what nothing needs.

        Raises:
            AirflowFailException: a setting is not allowed.
            AirflowException: the registry or the store does not answer; a retry goes on.
        """
        from trainyard import retention  # which a scheduler that parses a DAG has no use for

        try:
            keep = retention.Keep(
                days=float(self.keep_days),
                runs=int(self.keep_runs),
                checkpoint_days=float(self.checkpoint_days),
            )
            root = settings.store_root()
            os.environ["MLFLOW_TRACKING_URI"] = settings.tracking_uri()
        except JobError as error:
            raise AirflowFailException(str(error)) from None
        dry_run = str(self.only_list).lower() == "true"
        try:
            plan = retention.plan(root, keep)
            for line in plan.lines():
                self.log.info("%s%s", "(dry run) " if dry_run else "", line)
            if not dry_run:
                plan.apply()
        except (JobError, OSError) as error:
            raise AirflowException(str(error)) from None
        return {
            "dry_run": dry_run,
            "runs": len(plan.runs),
            "checkpoints": len(plan.checkpoints),
            "versions": len(plan.versions),
            "kept": plan.kept,
        }
