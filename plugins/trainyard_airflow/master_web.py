"""What a standalone master's web page says of its cluster: workers, drivers, applications.

The page's JSON needs neither Java nor Spark on the reader's side, only the port of the master's web
UI (8080), which is another than the one in its `spark://` address (7077).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from trainyard.errors import JobError
from trainyard_airflow.cluster_http import new_http

WEB_PORT = 8080

ALIVE = "ALIVE"
"""Status of the master that leads; another is STANDBY, or RECOVERING after a restart."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A live worker: cores and MiB of memory, in all and free, and GPUs in all."""

    name: str
    cores: int
    cores_free: int
    memory: int
    memory_free: int
    gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A driver that runs on the cluster or waits for a place on it.

    Attributes:
        state: SUBMITTED while it waits, then RUNNING; or RELAUNCHING.
        memory: MiB.
        started: seconds since 1970 at which it was submitted.
    """

    id: str
    state: str
    cores: int
    memory: int
    started: float


@dataclass(frozen=True, kw_only=True)
class Application:
    """An application: WAITING while it has no executor, then RUNNING.

    Attributes:
        cores: those that it has been given.
        started: seconds since 1970 at which it registered.
    """

    id: str
    name: str
    state: str
    cores: int
    started: float


@dataclass(frozen=True, kw_only=True)
class MasterState:
    """A master and its cluster at one moment.

    Attributes:
        url: the master's address, as `spark-submit --master` takes it.
        web: address of the page that was read.
        status: ALIVE, STANDBY or RECOVERING.
        workers: the live ones.
        drivers: those that have not ended.
        applications: those that have not ended.
    """

    url: str
    web: str
    status: str
    workers: tuple[Worker, ...]
    drivers: tuple[Driver, ...]
    applications: tuple[Application, ...]

    @property
    def cores(self) -> int:
        """Cores of all workers."""
        return sum(worker.cores for worker in self.workers)

    @property
    def cores_free(self) -> int:
        """Cores that nothing has now."""
        return sum(worker.cores_free for worker in self.workers)

    @property
    def is_ready(self) -> bool:
        """Whether it leads and has workers; one that has just started has none yet."""
        return self.status == ALIVE and bool(self.workers)


def web_addresses(master: str, *, port: int = WEB_PORT, scheme: str = "http") -> list[str]:
    """The web UI of each master in `spark://a:7077,b:7077`, all at one port.

    Raises:
        JobError: it is not a standalone master.
    """
    if not master.startswith("spark://"):
        raise JobError(
            f"{master!r} is no standalone master, and has no web API.",
            "Ask only a master of the form spark://HOST:7077.",
        )
    hosts = [re.sub(r":\d+$", "", part) for part in master.removeprefix("spark://").split(",")]
    return [f"{scheme}://{host}:{port}" for host in hosts]


def read_master(addresses: Sequence[str], *, timeout: float = 5.0) -> MasterState:
    """Ask the masters for their state; the one that leads answers for all.

    Args:
        addresses: of their web UIs, such as `http://host:8080`; see `web_addresses`.
        timeout: seconds to wait for each.

    Returns:
        The leading master's state, or that of one that recovers or stands by if none leads.

    Raises:
        JobError: none of them answers as a standalone master does.
    """
    states, errors = [], []
    for address in addresses:
        try:
            states.append(_read(address, timeout))
        except (httpx.HTTPError, httpx.InvalidURL, LookupError, ValueError, TypeError) as error:
            errors.append(f"{address}: {_reason(error)}")
            continue
        if states[-1].status == ALIVE:
            return states[-1]
    if not states:
        raise JobError(
            f"no web UI of a standalone Spark master answers ({'; '.join(errors)}).",
            "Start the master, or set the port of its web UI in the connection's extra web-port"
            f" (without it {WEB_PORT}).",
        )
    return min(states, key=lambda state: state.status)  # RECOVERING before STANDBY


def parse_state(payload: Mapping[str, Any], web: str) -> MasterState:
    """Read the document that a master's `/json/` answers with.

    Raises:
        LookupError, TypeError, ValueError: it is no such document.
    """
    return MasterState(
        url=str(payload["url"]),
        web=web,
        status=str(payload["status"]),
        workers=tuple(_worker(w) for w in payload["workers"] if w["state"] == ALIVE),
        drivers=tuple(
            Driver(
                id=str(driver["id"]),
                state=str(driver["state"]),
                cores=int(driver["cores"]),
                memory=int(driver["memory"]),
                started=int(driver["starttime"]) / 1000,
            )
            for driver in payload["activedrivers"]
        ),
        applications=tuple(
            Application(
                id=str(app["id"]),
                name=str(app["name"]),
                state=str(app["state"]),
                cores=int(app["cores"]),
                started=int(app["starttime"]) / 1000,
            )
            for app in payload["activeapps"]
        ),
    )


def _worker(worker: Mapping[str, Any]) -> Worker:
    gpu = worker.get("resources", {}).get("gpu", {})
    return Worker(
        name=f"{worker['host']}:{worker['port']}",
        cores=int(worker["cores"]),
        cores_free=int(worker["coresfree"]),
        memory=int(worker["memory"]),
        memory_free=int(worker["memoryfree"]),
        gpus=len(gpu.get("addresses", ())),
    )


def _read(address: str, timeout: float) -> MasterState:
    # Without the slash it answers with a redirection, which a proxy may turn elsewhere.
    is_secure = address.startswith("https:")
    with new_http(httpx.Client, is_secure=is_secure, seconds=timeout) as http:
        answer = http.get(f"{address.rstrip('/')}/json/")
    answer.raise_for_status()
    return parse_state(answer.json(), address)


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.HTTPError | httpx.InvalidURL):
        return str(error) or type(error).__name__
    return "what answers there is no Spark master"
