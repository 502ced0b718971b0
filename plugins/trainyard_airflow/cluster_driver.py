"""A driver on a cluster, seen from the task that waits for it: wait, end, take the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout

from trainyard import rundir, tickets
from trainyard.claims import ClaimRecord, live_claim
from trainyard.specs import RunDirectory
from trainyard_airflow import drivers, rest, settings
from trainyard_airflow.connection import rest_server
from trainyard_airflow.drivers import Driver
from trainyard_airflow.ending import PATIENCE_SECONDS, end_driver
from trainyard_airflow.outcome import Ended, error_of, outcome
from trainyard_airflow.progress import ProgressLines
from trainyard_airflow.rest import DriverState, RestClient
from trainyard_airflow.waiting import Waiting

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

KILL_SECONDS = 4.0
"""For ending a driver when the task is killed: Airflow ends its process after 5 s."""

_MARGIN_SECONDS = 0.5
"""After which an end that should be over by now, and could say why it is not, is given up."""

_STORY_LINES = 20


class ClusterDriver:
    """A driver that a task waits for, or waited for in the triggerer."""

    def __init__(self, driver: Driver, log: Logger) -> None:
        self.driver = driver
        self._log = log

    def wait(self) -> dict[str, Any]:
        """Wait in this process; Airflow itself enforces the task's time-out here."""

        async def connect() -> RestClient:
            return RestClient(rest_server(self.driver.conn_id))

        waiting = Waiting(driver=self.driver, deadline=None)
        return rest.run(waiting.until_end(connect, self._log))

    def end(self) -> None:
        """End the driver."""
        end(self.driver, patience=KILL_SECONDS)
        self._log.info("Ended driver %s.", self.driver)

    def conclude(self, job: RunDirectory, event: Mapping[str, Any]) -> dict[str, Any] | Driver:
        """The job's result, or another driver that works for this task and is to be waited for.

        Args:
            job: the job.
            event: what `Waiting.until_end` returned.

        Raises:
            AirflowFailException: the job was refused before any work; a retry would be too.
            AirflowTaskTimeout: it took longer than the task's execution_timeout.
            AirflowException: it failed; a retry continues.
        """
        self._tell_story()
        state, worker = event["state"], event["worker"]
        self._log.info(
            "Driver %s: %s%s.", self.driver, state, f", on worker {worker}" * bool(worker)
        )
        if rundir.read_result(job.run_dir) is None and not event["timed_out"]:
            claim = live_claim(job.run_dir, ended={self.driver.submission})
            if claim is not None and claim.submission not in ("", self.driver.submission):
                self._log.warning("Driver %s works already; waiting for it.", claim.submission)
                return adopted(self.driver, claim)
        if not event["timed_out"]:
            drivers.forget(self.driver)  # else it is forgotten once it is dead
        if event["timed_out"] and rundir.read_result(job.run_dir) is None:
            raise AirflowTaskTimeout(
                f"cause: {job.job} took longer than the task's execution_timeout; its driver"
                f" {self.driver} was ended. fix: Give it more time, or make the job smaller; a"
                " retry continues."
            )
        refusal = tickets.read_refusal(job.run_dir, self.driver.ticket)
        return outcome(
            job,
            Ended(
                refusal=error_of(refusal) if refusal else None,
                unexplained=_unexplained(job, self.driver, state, worker),
            ),
            self.driver.earlier_claim,
        )

    def _tell_story(self) -> None:
        """Log what the run has reported, in few lines; the triggerer logged it as it came."""
        try:
            events = rundir.sample_events(
                self.driver.run_dir,
                after_claim=self.driver.earlier_claim,
                most=2 * _STORY_LINES,
            )
        except (OSError, ValueError) as error:
            self._log.debug("The run's events cannot be read now: %s", error)
            return
        if events:
            span = events[-1]["time"] - events[0]["time"]
            for line in ProgressLines(every=span / _STORY_LINES).lines(events):
                self._log.info("%s", line)


def adopted(driver: Driver, claim: ClaimRecord) -> Driver:
    """The driver that holds a claim, for the task of another.

    Raises:
        AirflowException: it is none of a cluster.
    """
    if not claim.submission:
        raise AirflowException(
            f"cause: {driver.run_dir} is claimed by a live driver that this task did not start:"
            f" process {claim.pid} on {claim.host}. fix: End that process, or wait for it."
        )
    return dataclasses.replace(
        driver,
        submission=claim.submission,
        earlier_claim=claim.number - 1,
        submitted=claim.time,
    )


def end(driver: Driver, *, patience: float = PATIENCE_SECONDS) -> None:
    """End a driver for good, within `patience` seconds.

    Raises:
        AirflowException: it still works, or no master answers.
    """

    async def ending() -> None:
        async with RestClient(rest_server(driver.conn_id)) as client:
            await end_driver(client, driver, patience=patience)

    try:
        rest.run(ending(), seconds=patience + _MARGIN_SECONDS)
    except TimeoutError as error:
        raise AirflowException(f"cause: {error} fix: Look at the Spark master's page.") from None


def _unexplained(job: RunDirectory, driver: Driver, state: str, worker: str) -> str:
    where = f" on worker {worker}" if worker else ""
    if state == DriverState.FINISHED:
        return (
            f"cause: {job.job} ended well and wrote no result into {job.run_dir}. fix: Read the log"
            f" of driver {driver}{where}; do the workers see that directory?"
        )
    return (
        f"cause: {job.job} ended as {state} before it could say why. fix: Read stdout and stderr of"
        f" driver {driver}{where}, on the Spark master's page; is the program"
        f" {settings.cluster_program(job.job)} there on every worker?"
    )
