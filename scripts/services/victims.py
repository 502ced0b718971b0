"""What is killed with signal 9 below a running job, and how it comes back where it has to."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from services.processes import Process
from services.testbed import Testbed


@dataclass(frozen=True, kw_only=True)
class Victim:
    """Something that can be killed.

    Attributes:
        find: its processes now; none where it is not there.
        restart: starts it again. Spark itself starts executors again, and a retry the driver.
        takes_driver: whether a driver dies with these processes.
    """

    find: Callable[[Testbed], list[Process]]
    restart: Callable[[Testbed], object] = lambda testbed: None
    takes_driver: Callable[[Testbed, list[Process]], bool] = lambda testbed, found: False

    def strike(self, testbed: Testbed, away: float) -> bool | None:
        """Kill it, and start it again after `away` seconds.

        Returns:
            Whether a driver died with it; None where there was nothing to kill.
        """
        found = self.find(testbed)
        if not found:
            return None
        takes_driver = self.takes_driver(testbed, found)
        kill(found)
        time.sleep(away)
        self.restart(testbed)
        return takes_driver


def kill(victims: Iterable[Process]) -> None:
    """Kill processes, before any of them sees another one die."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for victim in victims:
            victim.signal(number)


def service(name: str) -> Victim:
    """A service of Airflow, with all the processes that it has started."""
    return Victim(
        find=lambda testbed: testbed.service(name),
        restart=lambda testbed: testbed.start_service(name),
    )


def spark_worker(number: int, *, alone: bool = False) -> Victim:
    """A worker: with what runs on it, as a machine that fails; or the worker's process alone."""

    def find(testbed: Testbed) -> list[Process]:
        members = testbed.cluster.session(f"worker{number}")
        return [p for p in members if p.pid == p.session or not alone]

    return Victim(
        find=find,
        restart=lambda testbed: testbed.cluster.start_worker(number),
        takes_driver=lambda testbed, found: any(
            driver.session == found[0].session for driver in testbed.driver_jvms()
        ),
    )


EXECUTOR = Victim(find=lambda testbed: testbed.executors()[-1:])
DRIVER_JVM = Victim(
    find=lambda testbed: testbed.driver_jvms(), takes_driver=lambda testbed, found: True
)
DRIVER_PYTHON = Victim(
    find=lambda testbed: testbed.driver_pythons(), takes_driver=lambda testbed, found: True
)
MASTER = Victim(
    find=lambda testbed: testbed.cluster.session("master"),
    restart=lambda testbed: testbed.cluster.start_master(),
)
AIRFLOW_WORKER = Victim(find=lambda testbed: testbed.tasks())
TRIGGERER = service("triggerer")
SCHEDULER = service("scheduler")
"""With LocalExecutor it is the parent of the tasks, which die with it."""
