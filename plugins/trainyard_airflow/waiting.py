"""Waiting for a driver's end, the same in the triggerer and in a worker."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard import rundir
from trainyard.claims import last_claim, live_claim
from trainyard.errors import JobError
from trainyard_airflow.drivers import Driver
from trainyard_airflow.ending import end_driver
from trainyard_airflow.progress import ProgressLines
from trainyard_airflow.rest import DriverState, DriverStatus, RestClient

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

YOUNG_SECONDS = 1.5
OLD_SECONDS = 15.0
"""Between two polls of a young driver and of an old one."""

_GROWTH = 1 / 40
_RELAY_SECONDS = 5.0
_LOST_SECONDS = 60.0
"""How long a master may be away before a driver without life counts as lost."""

Connect = Callable[[], Coroutine[Any, Any, RestClient]]


def pace(age: float) -> float:
    """Seconds until the next poll of a driver of this age in seconds, spread by a fifth."""
    seconds = min(max(YOUNG_SECONDS, age * _GROWTH), OLD_SECONDS)
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - it spreads load, it hides nothing


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What is waited for: a driver, up to a deadline in seconds since the epoch, or without one."""

    driver: Driver
    deadline: float | None

    async def until_end(self, connect: Connect, log: Logger) -> dict[str, Any]:
        """Wait, and say how the driver ended.

        Past the deadline the driver is killed first. A master that is away, or does not know the
        driver because it has forgotten it, ends nothing: what lies in the run directory decides.

        Returns:
            `state`, `worker` and `timed_out`, as plain JSON.
        """
        relay = asyncio.create_task(self._relay(log))
        try:
            return await self._poll(connect, log)
        finally:
            relay.cancel()

    async def _poll(self, connect: Connect, log: Logger) -> dict[str, Any]:
        client: RestClient | None = None
        answered, problem = time.time(), ""
        while True:
            try:
                client = client or await connect()
                if self.deadline is not None and time.time() >= self.deadline:
                    log.warning("The task's execution_timeout is over: ending %s.", self.driver)
                    await end_driver(client, self.driver)
                    return _timed_out()
                status = await client.status(self.driver.submission)
                if status.state.has_ended:
                    return _event(status)
                if status.state is not DriverState.NOT_FOUND:
                    answered, problem = time.time(), ""
                elif await asyncio.to_thread(self._is_dead):
                    return _event(status)
            # Whatever goes wrong with asking, such as a token that has expired, ends nothing.
            except Exception as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("The Spark master does not tell: %s Asking on.", problem)
                if self.deadline is not None and time.time() >= self.deadline + _LOST_SECONDS:
                    return _timed_out()
                is_lost = time.time() - answered > _LOST_SECONDS
                if is_lost and await asyncio.to_thread(self._has_died):
                    return _event(DriverStatus(state=DriverState.NOT_FOUND))
                if client is not None:
                    await client.close()
                client = None  # the connection may be another one by now
            await asyncio.sleep(self._next())

    def _next(self) -> float:
        seconds = pace(time.time() - self.driver.submitted)
        left = math.inf if self.deadline is None else self.deadline - time.time()
        return min(seconds, left) if left > 0 else YOUNG_SECONDS

    def _is_dead(self) -> bool:
        return rundir.read_result(self.driver.run_dir) is not None or not live_claim(
            self.driver.run_dir
        )

    def _has_died(self) -> bool:
        """Whether it has begun and is no more; one that has not begun may still come."""
        try:
            last = last_claim(self.driver.run_dir)
            has_begun = last is not None and last.number > self.driver.earlier_claim
            return has_begun and self._is_dead()
        except (OSError, JobError):  # the store is away too: nobody knows
            return False

    async def _relay(self, log: Logger) -> None:
        """Log the run's progress while it is made."""
        seen: dict[str, int] | None = None
        lines = ProgressLines()
        run_dir = self.driver.run_dir
        while True:
            try:
                if seen is None:  # what an earlier triggerer has told already is not told again
                    seen = await asyncio.to_thread(rundir.last_segments, run_dir)
                events = await asyncio.to_thread(rundir.read_events, run_dir, seen)
                own = [
                    e for e in events if rundir.claim_of(e["writer"]) > self.driver.earlier_claim
                ]
                for line in lines.lines(own):
                    log.info("%s", line)
            except (OSError, ValueError) as error:
                log.debug("The run's events cannot be read now: %s", error)
            await asyncio.sleep(max(_RELAY_SECONDS, pace(time.time() - self.driver.submitted)))


def _timed_out() -> dict[str, Any]:
    return {"state": str(DriverState.KILLED), "worker": "", "timed_out": True}


def _event(status: DriverStatus) -> dict[str, Any]:
    return {"state": str(status.state), "worker": status.worker, "timed_out": False}
