"""The REST client over a real socket: what it asks, and what it makes of every answer."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.certificates import server_context
from tests.plugins.fake_rest import FakeMaster, fake_master

from trainyard.errors import JobError
from trainyard_airflow import rest
from trainyard_airflow.capacity import Demand
from trainyard_airflow.connection import RestServer
from trainyard_airflow.driver_request import DriverRequest
from trainyard_airflow.rest import DriverState, MasterAwayError, RestClient

REQUEST = {"action": "CreateSubmissionRequest", "appArgs": ["--x=a b", "'"]}


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with fake_master() as served:
        yield served


def ask(method: str, *arguments: Any, urls: list[str], token: str = "", **more: Any) -> Any:
    async def asking() -> Any:
        async with RestClient(RestServer(urls=tuple(urls), token=token)) as client:
            return await getattr(client, method)(*arguments, **more)

    return rest.run(asking())


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_driver_is_made_watched_and_ended(master: FakeMaster) -> None:
    urls = [master.url]
    submission = ask("create", REQUEST, urls=urls)
    assert master.requests == [REQUEST]
    status = ask("status", submission, urls=urls)
    assert (status.state, status.worker) == (DriverState.RUNNING, "10.0.0.7:41000")
    assert ask("end", submission, urls=urls).state is DriverState.KILLED
    assert master.killed == [submission]
    assert ask("kill", submission, urls=urls) is False


def test_an_unknown_driver_is_not_found_and_needs_no_end(master: FakeMaster) -> None:
    assert ask("status", "driver-x", urls=[master.url]).state is DriverState.NOT_FOUND
    assert ask("end", "driver-x", urls=[master.url]).state is DriverState.NOT_FOUND


def test_a_driver_that_does_not_end_is_named(master: FakeMaster) -> None:
    master.obeys = False
    submission = ask("create", REQUEST, urls=[master.url])
    with pytest.raises(TimeoutError, match=f"{submission} does not end: it is RUNNING"):
        ask("end", submission, urls=[master.url], patience=0.5)
    assert master.killed == [submission], "asked once, and not again and again"


@pytest.mark.parametrize("away", ["refused", "standby"])
def test_of_several_masters_the_one_that_is_alive_answers(master: FakeMaster, away: str) -> None:
    with fake_master() as other:
        other.standby = True
        first = other.url if away == "standby" else f"http://127.0.0.1:{closed_port()}"
        submission = ask("create", REQUEST, urls=[first, master.url])
        assert ask("status", submission, urls=[first, master.url]).state is DriverState.RUNNING
        assert other.requests == []


def test_masters_that_are_away_may_come_back(master: FakeMaster) -> None:
    port = closed_port()
    with pytest.raises(MasterAwayError, match=f"127.0.0.1:{port}"):
        ask("status", "driver-1", urls=[f"http://127.0.0.1:{port}"])
    master.standby = True
    with pytest.raises(MasterAwayError, match="not alive: STANDBY"):
        ask("create", REQUEST, urls=[master.url])


@pytest.mark.parametrize(
    ("sent", "refused"),
    [("", "a request without a token: Authorization header"), ("other", "JWT Validate Fail")],
)
def test_a_token_that_is_missing_or_wrong_is_named_and_not_shown(
    master: FakeMaster, sent: str, refused: str
) -> None:
    master.token = "right"
    with pytest.raises(JobError, match=refused) as raised:
        ask("create", REQUEST, urls=[master.url], token=sent)
    assert "connection's password" in raised.value.fix
    assert not sent or sent not in str(raised.value)
    assert ask("create", REQUEST, urls=[master.url], token="right").startswith("driver-")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 405 No\r\nContent-Length: 29\r\n\r\n<title>Error 405 No</title>   ",
        b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"other": true}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]",
    ],
)
def test_what_is_no_rest_server_is_named_with_the_setting(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        async def serve() -> None:
            async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                writer.close()

            async with await asyncio.start_server(reply, sock=server.dup()):
                client = RestClient(RestServer(urls=(f"http://127.0.0.1:{port}",)))
                await client.status("driver-1")

        with pytest.raises(JobError, match=f"at http://127.0.0.1:{port} is not the REST server"):
            asyncio.run(serve())


def test_a_master_behind_tls_is_asked_if_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, trusted = server_context(tmp_path)
    with fake_master(tls) as served:
        served.token = "right"
        with pytest.raises(JobError, match=r"certificate of .https://127\.0\.0\.1") as raised:
            ask("create", REQUEST, urls=[served.url], token="right")
        assert "SSL_CERT_FILE" in raised.value.fix
        assert served.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        submission = ask("create", REQUEST, urls=[served.url], token="right")
        assert ask("end", submission, urls=[served.url], token="right").state is DriverState.KILLED


def test_https_to_a_master_without_tls_is_named(master: FakeMaster) -> None:
    url = master.url.replace("http:", "https:")
    with pytest.raises(JobError, match=f"{url!r} does not speak TLS") as raised:
        ask("status", "driver-1", urls=[url])
    assert "rest-scheme" in raised.value.fix


def test_a_token_is_in_no_text_of_the_server() -> None:
    server = RestServer(urls=("http://h:6066",), token="top-secret")
    assert "top-secret" not in repr(server) + str(server) + json.dumps(server.urls)


def test_a_secret_is_in_no_text_of_a_request() -> None:
    asked = Demand(job="x", slots=1, driver_cores=1, driver_memory=1)
    request = DriverRequest(words=[], variables={"T": "hidden"}, properties={}, demand=asked)
    assert "hidden" not in repr(request)
    assert request.body(1)["environmentVariables"]["T"] == "hidden"


def test_work_runs_beside_a_running_loop_and_in_time() -> None:
    async def outer() -> int:
        return rest.run(asyncio.sleep(0, 7))

    assert asyncio.run(outer()) == 7
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        rest.run(asyncio.sleep(30), seconds=0.1)
    assert time.monotonic() - began < 5
