"""Calls from Spark's tasks to the driver, over HTTP."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainyard.errors import TransientError

_MOST_BYTES = 10_000
_LOOK_SECONDS = 0.05
"""How often the server looks whether it shall end."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Where a task reaches the driver; travels to it.

    Attributes:
        host: address of the driver.
        port: its port.
        token: what only the driver's own tasks know.
        timeout: seconds to try.
    """

    host: str
    port: int
    token: str
    timeout: int

    def call(self, who: str, number: int, message: Any) -> Any:
        """Send plain JSON; return what the driver answers.

        Args:
            who: what errors call the task, such as `rank`.
            number: which one it is.
            message: plain JSON.

        Raises:
            TransientError: the driver cannot be reached.
        """
        url = f"http://{self.host}:{self.port}/{self.token}/{number}"
        request = urllib.request.Request(url, json.dumps(message).encode(), method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:  # noqa: S310
                return json.loads(answer.read())
        except OSError as error:
            raise self._unreachable(who, number, error) from error

    def address(self, who: str, number: int) -> str:
        """The local address that reaches the driver; arguments and errors as of `call`."""
        try:
            with socket.create_connection((self.host, self.port), self.timeout) as probe:
                return str(probe.getsockname()[0])
        except OSError as error:
            raise self._unreachable(who, number, error) from error

    def _unreachable(self, who: str, number: int, error: OSError) -> TransientError:
        return TransientError(
            f"{who} {number} on {socket.gethostname()} cannot reach the driver at "
            f"{self.host}:{self.port}: {error}.",
            "Set spark.driver.host to an address of the driver that executors reach, and let "
            "them connect to its ports.",
        )


@contextmanager
def answering(host: str, timeout: int, answer: Callable[[int, Any], Any]) -> Iterator[Line]:
    """Answer calls within the block.

    Args:
        host: address at which tasks reach this process.
        timeout: seconds that a task tries.
        answer: gives plain JSON for a task's number and what it sent; called from many threads.
    """
    token = secrets.token_hex(16)

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            _, given, number = [*self.path.split("/"), "", ""][:3]
            if not secrets.compare_digest(given, token) or length > _MOST_BYTES:
                self.send_error(404)
                return
            told = json.dumps(answer(int(number), json.loads(self.rfile.read(length)))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, args=(_LOOK_SECONDS,), name="calls", daemon=True
    )
    thread.start()
    try:
        yield Line(host=host, port=server.server_port, token=token, timeout=timeout)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
