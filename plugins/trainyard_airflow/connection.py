"""Which Spark master a connection means; what the provider would guess wrongly is refused.

The provider turns an unknown connection into YARN, appends a port to a host that has one, takes a
web page's address for a master and ignores extras that it does not know. Each costs a run, so each
is an error here, before anything is submitted.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from trainyard.errors import JobError, nearest
from trainyard_airflow import masking
from trainyard_airflow.connection_extra import read_extra
from trainyard_airflow.master_web import WEB_PORT, web_addresses

DEPLOY_MODES = ("client", "cluster")
BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")

_REST_PORT = 6066
"""Where a standalone master's REST server listens unless it says otherwise."""

_TOKEN = re.compile(r"[!-~]*")
"""What the header of a request can hold."""

_HOST_PORT = r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d+"
_LOCAL = re.compile(r"local(?:\[(?P<threads>\*|[1-9]\d*)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[(?P<workers>\d+),(?P<cores>\d+),\d+\]")
_MASTER = re.compile(
    rf"{_LOCAL.pattern}|{_LOCAL_CLUSTER.pattern}|yarn"
    rf"|spark://{_HOST_PORT}(?:,{_HOST_PORT})*|k8s://(?:https?://)?[^\s/:]+(?::\d+)?/?"
)
_FORMS = "local[2], spark://HOST:7077, yarn or k8s://https://HOST:PORT"


@dataclass(frozen=True, kw_only=True)
class RestServer:
    """The REST servers of a cluster's masters, through which drivers are submitted.

    Attributes:
        urls: one for each master.
        token: what a request proves itself with; empty where the servers want none.
    """

    urls: tuple[str, ...]
    token: str = field(default="", repr=False)

    @property
    def is_secure(self) -> bool:
        """Whether they speak HTTPS."""
        return self.urls[0].startswith("https:")


@dataclass(frozen=True, kw_only=True)
class SparkMaster:
    """Where a job is submitted.

    Attributes:
        url: the master, as `spark-submit --master` takes it.
        deploy_mode: where the driver runs: `client` for here, `cluster` for on a worker.
        binary: name of the program that submits in client mode.
        slots: tasks that can run at once, where that is known without asking the master.
        web: addresses of the web UIs of standalone masters; of others none.
        rest: where a driver is submitted in a standalone cluster's cluster mode.
    """

    url: str
    deploy_mode: str
    binary: str
    slots: int | None
    web: tuple[str, ...] = ()
    rest: RestServer | None = None


def resolve(conn_id: str, *, deploy_mode: str | None, binary: str | None) -> SparkMaster:
    """The master that a connection means.

    Args:
        conn_id: the Spark connection.
        deploy_mode: the operator's own choice, which goes before the connection's.
        binary: the operator's own choice of a program, which goes before the connection's.

    Raises:
        JobError: the connection does not exist, or does not clearly mean one master.
    """
    connection = _connection(conn_id)
    extra = read_extra(conn_id, connection)
    url = _master(conn_id, connection)
    mode = deploy_mode or extra.get("deploy-mode") or "client"
    _check_deploy_mode(conn_id, url, mode)
    chosen = binary or extra.get("spark-binary") or BINARIES[0]
    if binary is None and chosen not in BINARIES:
        raise JobError(
            f"connection {conn_id!r} has spark-binary {chosen!r}.",
            f"Use one of {', '.join(BINARIES)}, and put its folder on PATH.",
        )
    rest = None
    if mode == "cluster" and url.startswith("spark://"):
        rest = _rest_server(conn_id, url, connection)
    return SparkMaster(
        url=url,
        deploy_mode=mode,
        binary=chosen,
        slots=_slots(url),
        web=_web(conn_id, url, extra),
        rest=rest,
    )


def rest_server(conn_id: str) -> RestServer:
    """The REST servers of the masters that a connection means; see `resolve` for the errors."""
    connection = _connection(conn_id)
    url = _master(conn_id, connection)
    if not url.startswith("spark://"):
        raise JobError(
            f"connection {conn_id!r} means {url!r}, which has no REST server; a driver was"
            " submitted through it when it meant a standalone master.",
            "Let it mean that master until its drivers have ended, or end them on its page.",
        )
    return _rest_server(conn_id, url, connection)


def _connection(conn_id: str) -> Connection:
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        if variable in os.environ:
            raise JobError(
                f"connection {conn_id!r} cannot be read from {variable}: it is"
                " neither a connection in JSON nor a valid URI.",
                'Write it as JSON, such as {"conn_type": "spark", "host": "local[2]"}; a port is a'
                " number up to 65535.",
            ) from error
        raise JobError(
            f"connection {conn_id!r} is not defined.",
            f"Add it in Airflow (type Spark, host {_FORMS}) or as {variable}.",
        ) from error


def _master(conn_id: str, connection: Connection) -> str:
    """Put the master's URL together as the provider's hook does, and check it."""
    host = (connection.host or "").strip()
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        url = host
    else:
        url = f"{connection.conn_type}://{host}"
    if connection.port:
        url = f"{url}:{connection.port}"
    if not _MASTER.fullmatch(url):
        raise JobError(
            f"connection {conn_id!r} means the Spark master {masking.mask(url)!r}, which is none.",
            _master_fix(connection, url),
        )
    for host, port in _hosts(url):
        _check_host(conn_id, host, port)
    if url.startswith("k8s://") and not _is_installed("airflow.providers.cncf.kubernetes"):
        raise JobError(
            f"connection {conn_id!r} means {url!r}, and Airflow has no Kubernetes provider.",
            "Install apache-airflow-providers-cncf-kubernetes in Airflow's environment.",
        )
    return url


def _hosts(url: str) -> Iterator[tuple[str, str]]:
    """Host and port of each master in `spark://a:7077,b:7077`."""
    if url.startswith("spark://"):
        for master in url.removeprefix("spark://").split(","):
            host, _, port = master.rpartition(":")
            yield host, port


def _check_host(conn_id: str, host: str, port: str) -> None:
    problem = "" if 0 < int(port) < 65536 else "its port must be from 1 to 65535"
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError as error:
            problem = f"{error}"
    if problem:
        raise JobError(
            f"connection {conn_id!r} names the Spark master {host}:{port}: {problem}.",
            "Give the address that the master's page shows, such as spark://HOST:7077.",
        )


def _master_fix(connection: Connection, url: str) -> str:
    host = connection.host or ""
    if "local" in host and connection.port:
        return "Remove the port: a local master has none."
    if "%5B" in host.upper():
        return "Write brackets in a JSON connection's host as they are: local[2]."
    if re.search(r":\d+$", host) and connection.port:
        return f"The host has a port already: remove the port {connection.port}."
    if re.match(r"https?://", url):
        return "That is a web page: give the master's own address, such as spark://HOST:7077."
    if "@" in url:
        return "A master takes no user or password: a token is the connection's password."
    if "," in url:
        return "Write several masters as spark://HOST:7077,HOST:7077, without blanks."
    if url == "yarn://yarn":
        return 'Write it as JSON: {"conn_type": "spark", "host": "yarn"}.'
    return f"Use connection type spark and as host {_FORMS}."


def _check_deploy_mode(conn_id: str, url: str, mode: Any) -> None:
    if mode not in DEPLOY_MODES:
        raise JobError(
            f"the deploy mode of connection {conn_id!r} is {mode!r}.",
            nearest(str(mode), DEPLOY_MODES),
        )
    if mode == "cluster" and url.startswith("local"):
        raise JobError(
            f"connection {conn_id!r} asks for deploy mode 'cluster' on {url!r}: a local master has"
            " no cluster to run the driver in.",
            "Set the deploy mode to client.",
        )


def _rest_server(conn_id: str, url: str, connection: Connection) -> RestServer:
    """The REST servers of the masters in a URL, each on its master's host."""
    extra = read_extra(conn_id, connection)
    scheme, port = str(extra.get("rest-scheme", "http")), str(extra.get("rest-port", _REST_PORT))
    if scheme not in ("http", "https"):
        raise JobError(
            f"connection {conn_id!r} has the rest-scheme {scheme!r}.", "Use http or https."
        )
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise JobError(
            f"connection {conn_id!r} has the rest-port {port!r}, which is no port.",
            "Give the master's spark.master.rest.port.",
        )
    token = (connection.password or "").strip()
    if not _TOKEN.fullmatch(token):
        raise JobError(
            f"the password of connection {conn_id!r} is no token: it holds a blank, a line's end or"
            " a letter that is not ASCII.",
            "Paste the JSON Web Token alone, in one line.",
        )
    return RestServer(
        urls=tuple(f"{scheme}://{host}:{port}" for host, _ in _hosts(url)), token=token
    )


def _web(conn_id: str, url: str, extra: Mapping[str, Any]) -> tuple[str, ...]:
    """Where a standalone master's web UI is: at the extras' port and scheme, or its default."""
    if not url.startswith("spark://"):
        return ()
    port, scheme = str(extra.get("web-port", WEB_PORT)), str(extra.get("web-scheme", "http"))
    if not port.isdecimal() or not 0 < int(port) < 65536 or scheme not in ("http", "https"):
        raise JobError(
            f"connection {conn_id!r} has web-port {port!r} and web-scheme {scheme!r}.",
            "Give the port of the master's web UI, and http or https.",
        )
    return tuple(web_addresses(url, port=int(port), scheme=scheme))


def _slots(url: str) -> int | None:
    if match := _LOCAL_CLUSTER.fullmatch(url):
        return int(match["workers"]) * int(match["cores"])
    if match := _LOCAL.fullmatch(url):
        threads = match["threads"] or "1"
        return (os.cpu_count() or 1) if threads == "*" else int(threads)
    return None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
