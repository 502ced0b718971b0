"""Ending a driver for good, and when that is right."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from trainyard import tickets
from trainyard.claims import live_claim
from trainyard_airflow import drivers
from trainyard_airflow.drivers import Driver
from trainyard_airflow.rest import RestClient

PATIENCE_SECONDS = 60.0
"""How long a driver may take to end, a master that starts again included."""

_OVER = ("failed", "success", "skipped", "upstream_failed", "removed", None)


def is_over(state: str | None) -> bool:
    """Whether nobody waits for the driver of a task in this state.

    A trigger is told to kill when its row is gone, which has other reasons than a user's: a
    triggerer that was stalled finds that another one has taken its triggers over. So the state
    decides. Failed and success, also as a user marks them, are over; None is a cleared task, whose
    new generation has a driver of its own. In any other state the task still waits for this
    driver, or begins again: then it re-attaches to it, or ends it itself if it was cleared.
    """
    return state in _OVER


def task_state(driver: Driver) -> str | None:
    """The state of the task that waits for a driver; None where it is cleared or gone."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    is_mapped = driver.map_index >= 0
    states: dict[str, dict[str, Any]] = RuntimeTaskInstance.get_task_states(
        dag_id=driver.dag_id,
        task_ids=[driver.task_id],
        run_ids=[driver.run_id],
        map_index=driver.map_index if is_mapped else None,
    )
    name = f"{driver.task_id}_{driver.map_index}" if is_mapped else driver.task_id
    state = states.get(driver.run_id, {}).get(name)
    return None if state is None else str(state)


async def end_driver(
    client: RestClient, driver: Driver, *, patience: float = PATIENCE_SECONDS
) -> None:
    """Fence a driver off, kill it, and wait until it is dead; whether it was known or not.

    Raises:
        TimeoutError: something still works in the run directory.
        JobError: the master refuses.
    """
    deadline = time.monotonic() + patience
    # One that was lost on its way finds the ticket when it starts, and does nothing.
    await asyncio.to_thread(tickets.issue, driver.run_dir)
    ended: set[str] = set()

    async def end(submission: str) -> None:
        status = await client.end(submission, patience=deadline - time.monotonic())
        if status.state.is_dead:
            ended.add(submission)

    if driver.submission:
        await end(driver.submission)
    while claim := await asyncio.to_thread(live_claim, driver.run_dir, ended=ended):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {claim.pid} on {claim.host} still works: {driver.run_dir}")
        if claim.submission and claim.submission != driver.submission:
            await end(claim.submission)
        await asyncio.sleep(0.2)
    await asyncio.to_thread(drivers.forget, driver)
