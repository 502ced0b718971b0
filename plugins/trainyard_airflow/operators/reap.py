"""Ends drivers on a cluster whose task is gone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard.errors import JobError
from trainyard_airflow import cluster_driver, drivers, ending, masking
from trainyard_airflow.drivers import Driver

YOUNG_SECONDS = 60.0
"""A driver so young may still be on its way to the master, and its task to the triggerer."""


class EndLostDriversOperator(BaseOperator):
    """End every driver that nobody waits for: its task is over, was cleared, or is gone.

    A mark, a clear or a time-out ends a driver at once, by the task or by the triggerer. This is
    for the case that neither lived to do so. The XCom is `{"kept": n, "ended": [...]}`.

    Args:
        only_list: log what would be ended, and end nothing.
    """

    template_fields: Sequence[str] = ("only_list",)

    def __init__(self, *, only_list: Any = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.only_list = only_list

    def execute(self, context: Context) -> dict[str, Any]:
        """Look at every driver that is written down.

        Raises:
            AirflowFailException: the store is not set.
            AirflowException: a driver did not end; the next run tries again.
        """
        dry_run = str(self.only_list).lower() == "true"
        kept, ended, problems = 0, [], []
        try:
            known = sorted(drivers.recorded(), key=lambda driver: driver.submitted)
        except JobError as error:
            raise AirflowFailException(str(error)) from None
        for driver in known:
            reason = _why_lost(driver, known)
            if reason is None:
                kept += 1
                continue
            name = f"driver {driver} of {'.'.join(driver.task[:3])}"
            self.log.info("%s%s: %s.", "(dry run) " if dry_run else "Ending ", name, reason)
            if not dry_run:
                try:
                    cluster_driver.end(driver)
                except (AirflowException, JobError) as error:
                    problems.append(masking.mask(f"{name}: {error}"))
                    continue
            ended.append(str(driver))
        if problems:
            raise AirflowException("; ".join(problems))
        return {"kept": kept, "ended": ended}


def _why_lost(driver: Driver, known: list[Driver]) -> str | None:
    if time.time() - driver.submitted < YOUNG_SECONDS:
        return None
    later = [d for d in known if d.task == driver.task and d.submitted > driver.submitted]
    if any(other.generation != driver.generation for other in later):
        return "its task was cleared and has another driver"
    state = ending.task_state(driver)
    return f"its task is {state or 'cleared or gone'}" if ending.is_over(state) else None
