"""How the ranks meet when they start: each tells the driver its host, and gets those of all.

Over HTTP, since a `BarrierTaskContext.allGather` takes a second: it looks for its answer so often.
"""

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

from trainyard.barrier.engine import assign
from trainyard.errors import TransientError

_MOST_BYTES = 10_000


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where a rank reports; travels to it.

    Attributes:
        host: address of the driver.
        port: its port.
        token: what only the launch's own ranks know.
        timeout: seconds to wait for the others.
    """

    host: str
    port: int
    token: str
    timeout: int

    def meet(self, partition: int, host: str) -> list[str]:
        """Tell the driver that this task runs; wait for the others.

        Args:
            partition: the task's.
            host: what tells its host from others.

        Returns:
            For each partition what tells its host from others.

        Raises:
            TransientError: the driver cannot be reached, or not all came in time.
        """
        report = {"place": host, "host": socket.gethostname(), "pid": os.getpid()}
        url = f"http://{self.host}:{self.port}/{self.token}/{partition}"
        request = urllib.request.Request(url, json.dumps(report).encode(), method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:  # noqa: S310
                return list(json.loads(answer.read()))
        except OSError as error:
            raise self._unreachable(partition, error) from error

    def address(self, partition: int) -> str:
        """The local address that reaches the driver.

        Raises:
            TransientError: it cannot be reached.
        """
        try:
            with socket.create_connection((self.host, self.port)) as probe:
                return str(probe.getsockname()[0])
        except OSError as error:
            raise self._unreachable(partition, error) from error

    def _unreachable(self, partition: int, error: OSError) -> TransientError:
        return TransientError(
            f"task {partition} on {socket.gethostname()} cannot meet the other ranks at the "
            f"driver, {self.host}:{self.port}: {error}.",
            "Set spark.driver.host to an address of the driver that executors reach, and let "
            "them connect to its ports.",
        )


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
        self._came: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        """How many tasks have reported."""
        return len(self._came)

    def add(self, partition: int, report: dict[str, Any], timeout: float) -> list[str] | None:
        """Keep a task's report; wait for the others'.

        Returns:
            For each partition what tells its host from others; None where not all came within
            `timeout` seconds.
        """
        self._came[partition] = {"partition": partition, **report}
        if self._are_all():
            places = assign(self._hosts())
            self.ranks = {p.rank: self._came[n] for n, p in enumerate(places)}
            self.complete.set()
        self.complete.wait(timeout)
        return self._hosts() if self._are_all() else None

    def _are_all(self) -> bool:
        return len(self._came) == self._size

    def _hosts(self) -> list[str]:
        return [self._came[partition]["place"] for partition in range(self._size)]

    @contextmanager
    def open(self, host: str, timeout: int) -> Iterator[Desk]:
        """Take reports within the block.

        Args:
            host: address at which ranks reach this process.
            timeout: seconds that a rank waits for the others.
        """
        token = secrets.token_hex(16)
        reports = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                _, given, partition = [*self.path.split("/"), "", ""][:3]
                if not secrets.compare_digest(given, token) or length > _MOST_BYTES:
                    self.send_error(404)
                    return
                hosts = reports.add(int(partition), json.loads(self.rfile.read(length)), timeout)
                if hosts is None:
                    self.send_error(504, "not all ranks came")
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(hosts).encode())

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="reports", daemon=True
        )
        thread.start()
        try:
            yield Desk(host=host, port=server.server_port, token=token, timeout=timeout)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
