"""Submits in cluster mode: the driver runs on a worker of a standalone cluster, and outlives us."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowException

from trainyard import tickets
from trainyard.claims import ClaimRecord, last_claim, live_claim
from trainyard.errors import JobError
from trainyard_airflow import drivers, masking, rest
from trainyard_airflow.capacity import Demand
from trainyard_airflow.cluster_driver import KILL_SECONDS, adopted, end
from trainyard_airflow.connection import RestServer
from trainyard_airflow.driver_request import driver_request
from trainyard_airflow.drivers import Driver
from trainyard_airflow.outcome import earlier_result
from trainyard_airflow.rest import DriverState, MasterAwayError, RestClient
from trainyard_airflow.room import check_room
from trainyard_airflow.submission import Submission

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import TaskStateStoreAccessor
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

_MEMORY = "trainyard_driver"
"""Key in Airflow's task state store, which survives retries and clears."""


class ClusterSubmission:
    """A job on a cluster, from the submission until its driver is known."""

    def __init__(
        self,
        submission: Submission,
        ti: RuntimeTaskInstanceProtocol,
        memory: TaskStateStoreAccessor,
    ) -> None:
        if submission.master.rest is None:
            raise ValueError("the master has no REST server")
        self._server: RestServer = submission.master.rest
        self._submission = submission
        self._job = submission.job
        self._log = submission.log
        self._memory = memory
        self._is_killed = False
        self._request = driver_request(submission)
        self._driver = Driver(
            submission="",
            ticket=0,
            earlier_claim=0,
            submitted=0.0,
            run_dir=self._job.run_dir,
            generation=ti.max_tries,
            conn_id=submission.conn_id,
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            task_id=ti.task_id,
            map_index=-1 if ti.map_index is None else ti.map_index,
        )

    @property
    def demand(self) -> Demand:
        """What the job asks of the cluster."""
        return self._request.demand

    def begin(self, *, must_fit: bool) -> Driver | None:
        """Re-attach to the driver that works for this generation of the task, or submit one.

        Another generation's driver is ended first.

        Args:
            must_fit: whether a new driver is submitted only if all of it fits the cluster now.

        Returns:
            The driver to wait for; None where the result is there already.

        Raises:
            JobError: it cannot work as it is set, or the master refuses it; a `TransientError`
                where only the workers that are there now are too few.
            NoRoomError: it does not fit now.
            AirflowException: no master answers, or an earlier driver does not end.
        """
        for other in self._of_other_generations():
            self._log.info("The task was cleared: ending driver %s of before.", other)
            end(other)
        if earlier_result(self._job):
            drivers.forget(self._driver)  # an Airflow worker that was killed could not
            self._log.info("An earlier try finished in %s; nothing to do.", self._job.run_dir)
            return None
        earlier = self._remembered()
        if earlier and earlier.run_dir == self._job.run_dir and self._lives(earlier):
            self._log.info("Re-attaching to driver %s of an earlier try.", earlier)
            self._driver = earlier
            return earlier
        if must_fit and live_claim(self._job.run_dir) is None:
            check_room(self._submission.master, self.demand, self._log)
        return self._submit()

    def end(self) -> None:
        """End the driver, also one that is just being submitted."""
        self._is_killed = True
        if self._driver.ticket:
            end(self._driver, patience=KILL_SECONDS)
            self._log.info("Ended driver %s.", self._driver)

    def _remembered(self) -> Driver | None:
        values = self._memory.get(_MEMORY)
        try:
            return Driver.from_mapping(values) if isinstance(values, Mapping) else None
        except TypeError as error:  # of another version; a claim tells of a driver that works
            self._log.warning("What is remembered of a driver cannot be read: %s", error)
            return None

    def _of_other_generations(self) -> list[Driver]:
        """Drivers of this task before it was cleared; one whose id was lost is recorded too."""
        mine = self._driver
        remembered = self._remembered()
        found = [
            driver
            for driver in (*([remembered] if remembered else []), *drivers.recorded())
            if driver.task == mine.task and driver.generation != mine.generation
        ]
        return list({driver.run_dir: driver for driver in found}.values())

    def _remember(self, driver: Driver) -> Driver:
        self._driver = driver
        self._memory.set(_MEMORY, driver.to_mapping())
        drivers.record(driver)
        return driver

    def _lives(self, driver: Driver) -> bool:
        """Whether a driver is there or on its way; the claim says so where the master forgot it."""

        async def ask() -> bool:
            async with RestClient(self._server) as client:
                state = (await client.status(driver.submission)).state
                return not state.has_ended and state is not DriverState.NOT_FOUND

        deadline = time.monotonic() + rest.PATIENCE_SECONDS
        while driver.submission:
            try:
                return rest.run(ask())
            except MasterAwayError as error:
                self._wait_for_master(error, deadline)
        return False

    def _submit(self) -> Driver:
        """Submit, again for a while if no master answers: one may start again just now."""
        deadline = time.monotonic() + rest.PATIENCE_SECONDS
        while True:
            try:
                return self._submit_once()
            except MasterAwayError as error:
                self._wait_for_master(error, deadline)
            except JobError:
                drivers.forget(self._driver)  # there is none
                raise

    def _submit_once(self) -> Driver:
        # A ticket each time, since an unanswered request may have made a driver; and before the
        # claims are read: see `tickets`.
        ticket = tickets.issue(self._job.run_dir)
        self._driver = dataclasses.replace(self._driver, ticket=ticket, submitted=time.time())
        if claim := live_claim(self._job.run_dir):
            return self._adopt(claim)
        last = last_claim(self._job.run_dir)
        self._driver = dataclasses.replace(self._driver, earlier_claim=last.number if last else 0)
        # Before it is submitted, so that it can be found by its claim if this process dies now.
        drivers.record(self._driver)
        request = self._request.body(ticket)

        async def create() -> str:
            async with RestClient(self._server) as client:
                if self._is_killed:
                    raise AirflowException("The task was killed before it submitted.")
                return await client.create(request)

        driver = self._remember(dataclasses.replace(self._driver, submission=rest.run(create())))
        if self._is_killed:
            end(driver, patience=KILL_SECONDS)
            raise AirflowException(f"The task was killed, and driver {driver} with it.")
        self._log.info(
            "Connection %s: Spark master %s, deploy mode cluster: driver %s runs spark-submit %s",
            self._submission.conn_id,
            self._submission.master.url,
            driver,
            masking.mask_command(self._request.words),
        )
        return driver

    def _adopt(self, claim: ClaimRecord) -> Driver:
        """Wait for the driver that works already: one whose id was lost with an earlier try."""
        driver = adopted(self._driver, claim)
        self._log.warning("Driver %s works already; waiting for it.", driver)
        return self._remember(driver)

    def _wait_for_master(self, error: MasterAwayError, deadline: float) -> None:
        if self._is_killed or time.monotonic() > deadline:
            raise _away(self._submission.conn_id, self._server, error) from None
        self._log.info("Waiting for the Spark master: %s", error)
        time.sleep(1.0)


def _away(conn_id: str, server: RestServer, error: MasterAwayError) -> AirflowException:
    return AirflowException(
        f"cause: no REST server of a Spark master answers for connection {conn_id!r}: {error}."
        " fix: Start the master with spark.master.rest.enabled=true, and set the connection's extra"
        f" rest-port to its spark.master.rest.port; asked were {', '.join(server.urls)}."
    )
