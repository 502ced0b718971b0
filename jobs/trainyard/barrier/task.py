"""One rank: what runs inside its Spark task before and after the function itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainyard import rundir
from trainyard.barrier.engine import LaunchSettings, Member, assign
from trainyard.barrier.reports import Desk

PATIENCE_SECONDS = 10.0
"""How long a rank whose collective broke lets the rank that broke it be heard first."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Runs inside a barrier task: finds its rank, joins the others, calls the function.

    Attributes:
        settings: the launch's.
        launch: number of the launch under the driver's claim.
        desk: where to report.
        member: joins the task to the others.
        lost_errors: names of errors that say only that another rank is gone.
    """

    settings: LaunchSettings
    launch: int
    desk: Desk
    member: Member
    lost_errors: tuple[str, ...]

    def run(self, pickled: bytes) -> Iterator[tuple[int, Any]]:
        """Call the function; give the rank and what it returned."""
        from pyspark import BarrierTaskContext, cloudpickle

        if self.settings.access is not None:
            self.settings.access.grant()
        context = BarrierTaskContext.get()
        partition = context.partitionId()
        number = partition  # until the ranks have met
        # One thread a rank: a second one on busy cores costs more than it brings.
        os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
        try:
            hosts = self.desk.meet(partition, _host())
            place = assign(hosts)[partition]
            number = place.rank
            with self.member.joined(place, self.desk.address(partition)):
                result = cloudpickle.loads(pickled)()
        except BaseException as error:
            self._write_death(number, error)
            if type(error).__name__ in self.lost_errors:
                # Another rank died. Spark reports the first task that fails: let it be that one.
                time.sleep(PATIENCE_SECONDS)
            raise
        yield place.rank, result

    def _write_death(self, rank: int, error: BaseException) -> None:
        run_dir, claim = self.settings.run_dir, self.settings.claim
        with contextlib.suppress(OSError):  # a store that is full must not hide the error itself
            rundir.write_death(
                run_dir, claim=claim, worker=f"launch{self.launch}-rank{rank}", error=error
            )


def _host() -> str:
    """What tells this host from others, also from a container of the same name on another one."""
    import socket

    return f"{socket.gethostname()}-{_boot_id()}"


def _boot_id() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        return file.read().strip()
    return ""
