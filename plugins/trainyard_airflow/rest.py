"""A Spark standalone master's REST server: submit a driver, ask for its state, kill it.

Airflow's side needs neither Java nor Spark for it. Requests are asynchronous, so that one triggerer
waits for hundreds of drivers; `run` makes one from code that is not.
"""

from __future__ import annotations

import asyncio
import html
import re
import threading
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from trainyard.errors import JobError
from trainyard_airflow.cluster_http import check_tls, new_http
from trainyard_airflow.connection import RestServer

T = TypeVar("T")

REQUEST_SECONDS = 10.0
"""How long one request may take."""

PATIENCE_SECONDS = 12.0
"""How long a master that does not answer is waited for: one that starts again needs seconds."""

_NOT_ALIVE = "Current state is not alive"
"""What a master answers that is a standby or recovers."""

_CREATE = "/v1/submissions/create"
_TITLE = re.compile(r"<title>(?:Error \d+ )?(.*?)</title>", re.DOTALL)


class DriverState(StrEnum):
    """The states of a driver, as the master names them, and one for a driver unknown to it."""

    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    RELAUNCHING = "RELAUNCHING"
    UNKNOWN = "UNKNOWN"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    ERROR = "ERROR"
    NOT_FOUND = "NOT_FOUND"

    @property
    def has_ended(self) -> bool:
        """Whether the master has seen its end."""
        return self in (self.FINISHED, self.FAILED, self.KILLED, self.ERROR)

    @property
    def is_dead(self) -> bool:
        """Whether its worker has seen its end; ERROR is also what a lost worker's drivers get."""
        return self in (self.FINISHED, self.FAILED, self.KILLED)


@dataclass(frozen=True, kw_only=True)
class DriverStatus:
    """What the master says of a driver.

    Attributes:
        state: its state.
        worker: host and port of the worker it was launched on; empty before.
    """

    state: DriverState
    worker: str = ""


class MasterAwayError(Exception):
    """No master answers now; it may later."""


class RestClient:
    """A client of one cluster's masters, of which the one that is alive answers.

    Args:
        server: where the masters' REST servers are, and the token for them.
        http: a client that others use too; by default one of its own.
    """

    def __init__(self, server: RestServer, *, http: httpx.AsyncClient | None = None) -> None:
        self._server = server
        self._http = http or new_http(
            httpx.AsyncClient, is_secure=server.is_secure, seconds=REQUEST_SECONDS
        )
        self._owns_http = http is None
        self._urls = list(server.urls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, unless others use them too."""
        if self._owns_http:
            await self._http.aclose()

    async def create(self, request: Mapping[str, Any]) -> str:
        """Submit a driver once and return its submission id.

        Raises:
            MasterAwayError: nobody answers; whether the driver was made is unknown.
            JobError: the server refuses it, or is none of a master.
        """
        answer = await self._ask("POST", _CREATE, request)
        if not answer.get("success"):
            raise JobError(
                f"the Spark master at {self._urls[0]} refuses the driver: {_message(answer)}",
                "Read the master's log.",
            )
        return str(answer["submissionId"])

    async def status(self, submission: str) -> DriverStatus:
        """What has become of a driver; see `create` for the errors."""
        answer = await self._ask("GET", f"/v1/submissions/status/{submission}")
        state = answer.get("driverState")
        if state is None:
            return DriverStatus(state=DriverState.NOT_FOUND)
        return DriverStatus(
            state=DriverState(str(state)), worker=str(answer.get("workerHostPort", ""))
        )

    async def kill(self, submission: str) -> bool:
        """Ask for the end of a driver; False if it has ended. See `create` for the errors."""
        answer = await self._ask("POST", f"/v1/submissions/kill/{submission}", {})
        return bool(answer.get("success"))

    async def end(self, submission: str, *, patience: float = 30.0) -> DriverStatus:
        """Kill a driver and wait until the master knows it to be over.

        Raises:
            TimeoutError: it is not over after `patience` seconds.
            JobError: the server is none of a master, or refuses.
        """
        deadline = time.monotonic() + patience
        asked = False
        while True:
            try:
                asked = asked or await self.kill(submission)
                status = await self.status(submission)
                if status.state.has_ended or status.state is DriverState.NOT_FOUND:
                    return status
                problem = f"it is {status.state}"
            except MasterAwayError as error:
                problem, asked = str(error), False
            if time.monotonic() > deadline:
                raise TimeoutError(f"driver {submission} does not end: {problem}")
            await asyncio.sleep(0.3)

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Ask the master that answered last, then the others."""
        problems = []
        for url in list(self._urls):
            try:
                answer = await self._request(method, url + path, body)
            except MasterAwayError as error:
                problems.append(f"{url}: {error}")
                continue
            self._urls.remove(url)
            self._urls.insert(0, url)
            return answer
        raise MasterAwayError("; ".join(problems))

    async def _request(
        self, method: str, url: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        headers = {"Content-Type": "application/json;charset=UTF-8"}
        if self._server.token:
            headers["Authorization"] = f"Bearer {self._server.token}"
        try:
            response = await self._http.request(method, url, json=body, headers=headers)
        except (httpx.RequestError, OSError) as error:
            check_tls(error, _server_of(url))
            raise MasterAwayError(str(error) or type(error).__name__) from error
        if response.status_code in (401, 403):
            raise self._unauthorised(url, response)
        try:
            answer = dict(response.json())
        except (TypeError, ValueError) as error:
            if response.status_code in (502, 503, 504):
                raise MasterAwayError(f"HTTP {response.status_code}") from error
            raise _no_rest_server(url, f"HTTP {response.status_code}, {_title(response)}") from None
        if "serverSparkVersion" not in answer:
            raise _no_rest_server(url, f"HTTP {response.status_code}, other JSON")
        if _NOT_ALIVE in _message(answer):
            raise MasterAwayError(_message(answer))
        if answer.get("action") == "ErrorResponse":
            raise JobError(
                f"the Spark master's REST server answers {url} with an error: {_message(answer)}",
                "Read the master's log; is its Spark older than 3.4?",
            )
        return answer

    def _unauthorised(self, url: str, response: httpx.Response) -> JobError:
        sent = "the token of the connection" if self._server.token else "a request without a token"
        return JobError(
            f"the Spark master's REST server at {_server_of(url)} refuses {sent}:"
            f" {_title(response)}.",
            "Set the connection's password to a JSON Web Token that is signed with the key of"
            " spark.org.apache.spark.ui.JWSFilter.param.secretKey, and has not expired.",
        )


def run(work: Coroutine[Any, Any, T], *, seconds: float | None = None) -> T:
    """Run asynchronous work to its end, from any code: a signal handler in a loop's thread too.

    Raises:
        TimeoutError: it takes longer than `seconds`; what it does in a thread may then still go on.
    """
    outcome: list[T] = []
    errors: list[BaseException] = []

    def finish() -> None:
        try:
            outcome.append(asyncio.run(asyncio.wait_for(work, seconds)))
        except BaseException as error:  # it is the caller's, whatever it is
            errors.append(error)

    thread = threading.Thread(target=finish, name="spark-rest", daemon=True)
    thread.start()
    # The loop itself ends only after its threads, which nothing can cancel.
    thread.join(seconds)
    if not outcome and not errors:
        raise TimeoutError(f"there is no answer within {seconds} s")
    if errors:
        raise errors[0]
    return outcome[0]


def _server_of(url: str) -> str:
    return url.partition("/v1/")[0]


def _no_rest_server(url: str, answer: str) -> JobError:
    return JobError(
        f"what answers at {_server_of(url)} is not the REST server of a Spark master ({answer}).",
        "Set the connection's extra rest-port to the master's spark.master.rest.port (6066 unless"
        " it says otherwise), and rest-scheme to http or https.",
    )


def _message(answer: Mapping[str, Any]) -> str:
    """What an answer says, in one line; a stack trace belongs into the master's log."""
    text = " ".join(str(answer.get("message") or "").partition("\n\tat ")[0].split())
    return text.removeprefix("Exception from the cluster: java.lang.Exception: ")


def _title(response: httpx.Response) -> str:
    found = _TITLE.search(response.text)
    return html.unescape(found[1]).strip(" .\n") if found else response.reason_phrase
