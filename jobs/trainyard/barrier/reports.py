"""What the ranks tell the driver when they start, over HTTP."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainyard.errors import TransientError

_MOST_BYTES = 10_000


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where a rank reports; travels to it.

    Attributes:
        host: address of the driver.
        port: its port.
        token: what only the launch's own ranks know.
        timeout: seconds to try.
    """

    host: str
    port: int
    token: str
    timeout: int

    def report(self, rank: int, partition: int) -> str:
        """Tell the driver that this rank runs; return the local address that reaches the driver.

        Raises:
            TransientError: it cannot be reached.
        """
        report = {"partition": partition, "host": socket.gethostname(), "pid": os.getpid()}
        url = f"http://{self.host}:{self.port}/{self.token}/{rank}"
        request = urllib.request.Request(url, json.dumps(report).encode(), method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout):  # noqa: S310
                pass
            with socket.create_connection((self.host, self.port)) as probe:
                return str(probe.getsockname()[0])
        except OSError as error:
            raise TransientError(
                f"rank {rank} on {socket.gethostname()} cannot reach the driver at "
                f"{self.host}:{self.port}: {error}.",
                "Set spark.driver.host to an address of the driver that executors reach, and let "
                "them connect to its ports.",
            ) from error


class Reports:
    """The reports of a launch's ranks.

    Attributes:
        ranks: partition, host and process of each rank that has started.
        complete: set once all have.
    """

    def __init__(self, size: int) -> None:
        self.ranks: dict[int, dict[str, Any]] = {}
        self.complete = threading.Event()
        self._size = size

    def add(self, rank: int, report: dict[str, Any]) -> None:
        """Keep the report of a rank."""
        self.ranks[rank] = report
        if len(self.ranks) == self._size:
            self.complete.set()

    @contextmanager
    def open(self, host: str, timeout: int) -> Iterator[Desk]:
        """Take reports within the block.

        Args:
            host: address at which ranks reach this process.
            timeout: seconds that a rank tries.
        """
        token = secrets.token_hex(16)
        reports = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                _, given, rank = [*self.path.split("/"), "", ""][:3]
                if not secrets.compare_digest(given, token) or length > _MOST_BYTES:
                    self.send_error(404)
                    return
                reports.add(int(rank), json.loads(self.rfile.read(length)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="reports", daemon=True)
        thread.start()
        try:
            yield Desk(host=host, port=server.server_port, token=token, timeout=timeout)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
