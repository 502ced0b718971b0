"""XGBoost's workers: how they find each other, and what their errors mean."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import xgboost as xgb
from xgboost.collective import CommunicatorContext
from xgboost.tracker import RabitTracker

from trainyard.barrier.engine import Place
from trainyard.errors import JobError, TransientError

_RETRIES = 3


class CollectiveError(Exception):
    """Another worker is gone, or did not answer in time."""


@dataclass(frozen=True, kw_only=True)
class XGBoostEngine:
    """Workers that find each other by XGBoost's tracker, which runs on the driver.

    Attributes:
        start_timeout: seconds in which all of them must have found each other.
        stall_timeout: seconds after which a worker that does not answer ends the others.
    """

    start_timeout: int
    stall_timeout: int

    ranks_setting = "num_workers"
    lost_errors = ("CollectiveError",)
    memory_fix = "use more workers, or lower max_bin in booster_params"

    @contextmanager
    def serve(self, host: str, ranks: int) -> Iterator[XGBoostMember]:
        """Run the tracker; see `Engine`."""
        try:
            # Workers get the ranks that their task ids sort to.
            tracker = RabitTracker(
                n_workers=ranks,
                host_ip=socket.gethostbyname(host),
                sortby="task",
                timeout=self.start_timeout,
            )
            tracker.start()
        except (OSError, xgb.core.XGBoostError) as error:
            raise JobError(
                f"XGBoost's tracker cannot listen at {host}: {last_line(error)}.",
                "Set spark.driver.host to an address of the driver's own machine.",
            ) from error
        address = tracker.worker_args()
        member = XGBoostMember(
            host=str(address["dmlc_tracker_uri"]),
            port=int(address["dmlc_tracker_port"]),
            timeout=self.stall_timeout,
        )
        try:
            yield member
        finally:
            with contextlib.suppress(xgb.core.XGBoostError):  # workers that died did not sign off
                tracker.free()


@dataclass(frozen=True, kw_only=True)
class XGBoostMember:
    """Joins a task to XGBoost's workers.

    Attributes:
        host: address of the tracker.
        port: its port.
        timeout: seconds that a worker waits for another one.
    """

    host: str
    port: int
    timeout: int

    @contextmanager
    def joined(self, place: Place, address: str) -> Iterator[None]:
        """Join XGBoost's communication group; see `Member`.

        It is left only where nothing went wrong: signing off waits for the others.
        """
        communicator = CommunicatorContext(
            dmlc_tracker_uri=self.host,
            dmlc_tracker_port=self.port,
            dmlc_task_id=f"{place.rank:06d}",
            dmlc_timeout=self.timeout,
            dmlc_retry=_RETRIES,
        )
        try:
            communicator.__enter__()
        except xgb.core.XGBoostError as error:
            raise TransientError(
                f"rank {place.rank} on {socket.gethostname()} cannot reach XGBoost's tracker at "
                f"{self.host}:{self.port}: {last_line(error)}.",
                "Set spark.driver.host to an address of the driver that executors reach, and let "
                "them connect to its ports.",
            ) from error
        try:
            yield
        except xgb.core.XGBoostError as error:
            raise explained(error) from error
        communicator.__exit__()


def explained(error: xgb.core.XGBoostError) -> Exception:
    """What an error of XGBoost means, where that is known."""
    text = str(error)
    if "nccl" in text.lower():
        return JobError(
            f"the GPUs of the workers cannot reach each other: {last_line(error)}.",
            "Name the network interface that joins them: set spark.executorEnv.NCCL_SOCKET_IFNAME, "
            "such as to eth0; spark.executorEnv.NCCL_DEBUG=INFO shows which one NCCL takes.",
        )
    if "/collective/" in text:
        return CollectiveError(last_line(error))
    return error


def last_line(error: Exception) -> str:
    """The line of XGBoost's error that says most: the last one before the stack trace."""
    text = str(error).split("Stack trace:")[0]
    lines = [line.strip(" -") for line in text.splitlines() if line.strip(" -")]
    line = lines[-1] if lines else type(error).__name__
    return line.rpartition("]: ")[2].rstrip(".")
