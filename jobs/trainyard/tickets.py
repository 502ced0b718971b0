"""Fencing tokens for run directories: only the driver that Airflow submitted last may begin work.

Before each submission Airflow issues a ticket (the token), numbered from 1, and the driver carries
its number. A driver whose ticket is not the last one is of a submission that was given up: it was
lost on its way, or its task was cleared. Airflow issues a ticket before it reads the claims, and a
driver reads the tickets after it has claimed, so that one of the two always sees the other.
"""

from __future__ import annotations

import os
from typing import Any

from trainyard import store
from trainyard.errors import JobError, TransientError
from trainyard.layout import TICKETS, join

NUMBER = "TRAINYARD_TICKET"
"""Environment variable of a driver: the number of its ticket."""

RUN_DIR = "TRAINYARD_SUBMISSION"
"""Environment variable of every process of a submission: its run directory."""


def issue(run_dir: str) -> int:
    """Issue the next ticket; the drivers of all earlier ones are fenced off."""
    number = last(run_dir)
    while True:
        number += 1
        if store.create_bytes(_uri(run_dir, number, "ticket"), b"issued\n"):
            return number


def last(run_dir: str) -> int:
    """Number of the last ticket; 0 where none was issued."""
    names = store.list_names(join(run_dir, TICKETS))
    return max((int(name.split(".")[0]) for name in names if name.endswith(".ticket")), default=0)


def check(run_dir: str) -> None:
    """Stop a driver whose ticket is not the last; one without a ticket was started by hand.

    Raises:
        TransientError: a later ticket was issued.
    """
    number = os.environ.get(NUMBER)
    if number is None:
        return
    current = last(run_dir)
    if int(number) != current:
        raise TransientError(
            f"this driver has ticket {number} for the run directory {run_dir!r}, and ticket"
            f" {current} was issued since.",
            "Nothing is to be done: Airflow has given this driver up, and another one works.",
        )


def report_refusal(error: JobError) -> None:
    """Tell Airflow why this driver does no work; it does not see what a driver prints."""
    run_dir, number = os.environ.get(RUN_DIR), os.environ.get(NUMBER)
    if run_dir and number:
        refusal = {"cause": error.cause, "fix": error.fix, "permanent": error.permanent}
        store.create_bytes(_uri(run_dir, int(number), "refused"), store.to_json(refusal))


def read_refusal(run_dir: str, number: int) -> dict[str, Any] | None:
    """Why the driver of a ticket did no work, as `cause`, `fix` and whether it is `permanent`.

    None where it did not say.
    """
    try:
        return dict(store.read_json(_uri(run_dir, number, "refused")))
    except FileNotFoundError:
        return None


def _uri(run_dir: str, number: int, suffix: str) -> str:
    return join(run_dir, TICKETS, f"{number:04d}.{suffix}")
