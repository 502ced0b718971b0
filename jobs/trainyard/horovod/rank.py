"""One rank: what runs inside its Spark task before and after the training itself."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard import rundir
from trainyard.errors import TransientError

REPORTS = "trainyard"
"""Scope of the rendezvous server in which ranks tell the driver that they run."""

COLLECTIVE_ERRORS = ("HorovodInternalError", "StallError")
"""What is raised on every other rank when one is gone or does not answer."""

PATIENCE_SECONDS = 10.0
"""How long a rank whose collective broke lets the rank that broke it be heard first."""


@dataclass(frozen=True, kw_only=True)
class LaunchSettings:
    """What a launcher needs to know besides the function and the number of ranks.

    Attributes:
        run_dir: run directory, which receives a record of each rank that dies of an error.
        claim: number of the driver's claim on it.
        cycle_time_ms: Horovod's cycle time.
        start_timeout: seconds until every rank has a slot.
        stall_timeout: seconds after which a rank that does not answer ends the others.
    """

    run_dir: str
    claim: int
    cycle_time_ms: float
    start_timeout: int
    stall_timeout: int


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Runs inside a barrier task: finds its rank, joins Horovod, calls the function.

    Attributes:
        settings: the launch's.
        launch: number of the launch under the driver's claim.
        driver: host of the rendezvous server.
        port: its port.
    """

    settings: LaunchSettings
    launch: int
    driver: str
    port: int

    def task(self, pickled: bytes) -> Iterator[tuple[int, Any]]:
        """Call the function; give the rank and what it returned."""
        from horovod.runner.common.util.host_hash import host_hash
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        partition = context.partitionId()
        slot = assign(context.allGather(host_hash()))[partition]
        try:
            result = self._call(pickled, slot, partition)
        except BaseException as error:
            self._write_death(slot.rank, error)
            if type(error).__name__ in COLLECTIVE_ERRORS:
                # Another rank died. Spark reports the first task that fails: let it be that one.
                time.sleep(PATIENCE_SECONDS)
            raise
        yield slot.rank, result

    def _write_death(self, rank: int, error: BaseException) -> None:
        run_dir, claim = self.settings.run_dir, self.settings.claim
        with contextlib.suppress(OSError):  # a store that is full must not hide the error itself
            rundir.write_death(
                run_dir, claim=claim, worker=f"launch{self.launch}-rank{rank}", error=error
            )

    def _call(self, pickled: bytes, slot: Any, partition: int) -> Any:
        from horovod.runner.gloo_run import create_slot_env_vars
        from pyspark import cloudpickle

        address = self._report(slot.rank, partition)
        os.environ.update(create_slot_env_vars(slot))
        os.environ.update(tuning(self.settings))
        os.environ.update(
            HOROVOD_CONTROLLER="gloo",
            HOROVOD_CPU_OPERATIONS="gloo",
            HOROVOD_GLOO_RENDEZVOUS_ADDR=socket.gethostbyname(self.driver),
            HOROVOD_GLOO_RENDEZVOUS_PORT=str(self.port),
        )
        if interface := _interface(address):
            os.environ["HOROVOD_GLOO_IFACE"] = interface
        import horovod.torch as hvd

        from trainyard.horovod import collective

        collective.init()
        result = cloudpickle.loads(pickled)()
        hvd.shutdown()
        return result

    def _report(self, rank: int, partition: int) -> str:
        """Tell the driver that this rank runs; return the local address that reaches the driver."""
        report = {"partition": partition, "host": socket.gethostname(), "pid": os.getpid()}
        url = f"http://{self.driver}:{self.port}/{REPORTS}/{rank}"
        request = urllib.request.Request(url, json.dumps(report).encode(), method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=self.settings.start_timeout):  # noqa: S310
                pass
            with socket.create_connection((self.driver, self.port)) as probe:
                return str(probe.getsockname()[0])
        except (urllib.error.URLError, OSError) as error:
            raise TransientError(
                f"rank {rank} on {socket.gethostname()} cannot reach the driver at "
                f"{self.driver}:{self.port}: {error}.",
                "Set spark.driver.host to an address of the driver that executors reach, and let "
                "them connect to its ports.",
            ) from error


def assign(hosts: Sequence[str]) -> list[Any]:
    """Horovod's slots by partition: ranks of one host follow each other.

    Args:
        hosts: for each partition, what tells its host from others.
    """
    from horovod.runner.common.util.hosts import HostInfo, get_host_assignments

    counts = [HostInfo(host, count) for host, count in Counter(hosts).items()]
    free: dict[str, deque[Any]] = defaultdict(deque)
    for slot in get_host_assignments(counts, len(hosts)):
        free[slot.hostname].append(slot)
    return [free[host].popleft() for host in hosts]


def tuning(settings: LaunchSettings) -> dict[str, str]:
    """Environment variables that hold however a rank was started."""
    # Horovod's own stall check does nothing with Gloo, whose controller leaves its list of ranks
    # empty in 0.28.1: `collective` bounds the wait for a rank that lives, Gloo for one that froze.
    return {
        "HOROVOD_CYCLE_TIME": str(settings.cycle_time_ms),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(settings.stall_timeout),
        "OMP_NUM_THREADS": "1",
    }


def _interface(address: str) -> str | None:
    """The network interface that has an address; Horovod would guess one by the host's name."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(known.address == address for known in addresses):
            return str(name)
    return None
