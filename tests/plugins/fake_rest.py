"""A standalone master's REST server in small, over a real socket; it answers as Spark 4.3 does."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PREFIX = "/v1/submissions/"
VERSION = "4.3.0"


@dataclass
class FakeMaster:
    """What the server knows and what it is to do.

    Attributes:
        drivers: state of each driver, by submission id.
        requests: bodies of the submissions.
        killed: submission ids in the order of their kills.
        polls: how often each driver's state was asked for.
        token: what a request must bring; empty for none.
        standby: whether it answers as a master that is not alive.
        lose_answers: how many submissions are taken and then not answered.
        obeys: whether a kill ends a driver at once.
        begin: state of a new driver.
        web: what its page says of the cluster; it has no page without.
        on_create: called with each new driver's id and request.
        on_kill: called with the id of each driver that is killed.
    """

    url: str = ""
    drivers: dict[str, str] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    polls: dict[str, int] = field(default_factory=dict)
    token: str = ""
    standby: bool = False
    lose_answers: int = 0
    obeys: bool = True
    begin: str = "RUNNING"
    web: dict[str, Any] = field(default_factory=dict)
    on_create: Callable[[str, dict[str, Any]], object] = lambda name, body: None
    on_kill: Callable[[str], object] = lambda name: None

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def connection(self, **fields: Any) -> str:
        """The Airflow connection to it, as JSON."""
        extra = {"deploy-mode": "cluster", "rest-port": self.port, "web-port": self.port}
        return json.dumps(
            {"conn_type": "spark", "host": "spark://127.0.0.1:7077", "extra": extra, **fields}
        )

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make a driver."""
        self.requests.append(body)
        name = f"driver-20261130000000-{len(self.requests) - 1:04d}"
        self.drivers[name] = self.begin
        self.on_create(name, body)
        message = f"Driver successfully submitted as {name}"
        return _answer("CreateSubmission", name, True, message=message)

    def status(self, name: str) -> dict[str, Any]:
        """A driver's state."""
        self.polls[name] = self.polls.get(name, 0) + 1
        if name not in self.drivers:
            return _answer("SubmissionStatus", name, False)
        more = {"driverState": self.drivers[name], "workerHostPort": "10.0.0.7:41000"}
        return _answer("SubmissionStatus", name, True, **more)

    def kill(self, name: str) -> dict[str, Any]:
        """End a driver."""
        self.killed.append(name)
        alive = self.drivers.get(name) in ("SUBMITTED", "RUNNING")
        if alive and self.obeys:
            self.drivers[name] = "KILLED"
            self.on_kill(name)
        message = f"Kill request for {name} submitted" if alive else f"{name} does not exist"
        return _answer("KillSubmission", name, alive, message=message)


def _answer(action: str, name: str, success: bool, **more: Any) -> dict[str, Any]:
    return {
        "action": f"{action}Response",
        "serverSparkVersion": VERSION,
        "submissionId": name,
        "success": success,
        **more,
    }


@contextmanager
def fake_master(tls: ssl.SSLContext | None = None) -> Iterator[FakeMaster]:
    """Serve while the block runs; by HTTPS where `tls` is given."""
    master = FakeMaster()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def answer(self, body: dict[str, Any] | None) -> None:
            if master.token and self.headers["Authorization"] != f"Bearer {master.token}":
                given = "JWT Validate Fail" if self.headers["Authorization"] else ""
                title = given or "Authorization header is missing."
                page = f"<html><head><title>Error 403 {title}</title></head></html>"
                self.send(403, page.encode(), "text/html")
                return
            if self.path == "/json/":
                code = 200 if master.web else 404
                self.send(code, json.dumps(master.web).encode(), "application/json")
                return
            action, _, name = self.path.removeprefix(PREFIX).partition("/")
            if master.standby:
                answer = _answer("SubmissionStatus", name, False, message=STANDBY)
            elif action == "create":
                answer = master.create(body or {})
                if master.lose_answers:
                    master.lose_answers -= 1
                    self.close_connection = True
                    return
            elif action == "status":
                answer = master.status(name)
            else:
                answer = master.kill(name)
            self.send(200, json.dumps(answer).encode(), "application/json")

        def send(self, code: int, data: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 512

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    master.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield master
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


STANDBY = (
    "Exception from the cluster:\njava.lang.Exception: Current state is not alive: STANDBY."
    " Can only request driver status in ALIVE state."
)
