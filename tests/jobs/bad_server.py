"""An HTTP server of this machine that misbehaves in every way that a list of URLs meets."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from image_files import DAISY


class BadServer(ThreadingHTTPServer):
    """Answers a path by the way it names; see `_Handler`.

    Attributes:
        asked: how often each path was asked for.
        together: how many requests for `slowly` were answered at the same time at most.
        elsewhere: where `elsewhere` redirects to.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: Counter[str] = Counter()
        self.now = self.together = 0
        self.lock = threading.Lock()
        self.elsewhere = ""

    @property
    def host(self) -> str:
        """Its address and port, as `allowed_hosts` names them."""
        return f"127.0.0.1:{self.server_port}"

    def url(self, way: str) -> str:
        """The URL of a way to answer."""
        return f"http://{self.host}/{way}"


@contextmanager
def serving() -> Iterator[BadServer]:
    """A server that answers while the block runs."""
    with BadServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: BadServer

    def do_GET(self) -> None:
        way = urlsplit(self.path).path.strip("/").split("/")[0]
        with self.server.lock:
            self.server.asked[way] += 1
        with suppress(BrokenPipeError, ConnectionResetError):  # the client had enough
            getattr(self, way)()

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def answer(self, data: bytes, *, length: int | None = None, kind: str = "image/jpeg") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def send_to(self, place: str, status: int = 302) -> None:
        self.send_response(status)
        self.send_header("Location", place)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def status(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def good(self) -> None:
        self.answer(DAISY.read_bytes())

    def slowly(self) -> None:
        with self.server.lock:
            self.server.now += 1
            self.server.together = max(self.server.together, self.server.now)
        time.sleep(0.1)
        with self.server.lock:
            self.server.now -= 1
        self.good()

    def silent(self) -> None:
        time.sleep(1.5)

    def drips(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        for _ in range(100):
            self.wfile.write(b"x")
            time.sleep(0.05)

    def drips_headers(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(100):
            self.wfile.write(b"X: y\r\n")
            time.sleep(0.05)

    def endless(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n")
        while True:
            self.wfile.write(b"x" * 65_536)

    def missing(self) -> None:
        self.status(404)

    def overloaded(self) -> None:
        self.status(503)

    def flaky(self) -> None:
        if self.server.asked["flaky"] < 3:
            self.status(503)
        else:
            self.good()

    def cut(self) -> None:
        self.answer(DAISY.read_bytes()[:9000], length=100_000)

    def cut_chunk(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nx")

    def untyped(self) -> None:
        self.answer(DAISY.read_bytes(), kind="binary/octet-stream")

    def hangs_up(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)

    def rubbish(self) -> None:
        self.wfile.write(b"\x00\x01nonsense\r\n\r\n")

    def page(self) -> None:
        self.answer(b"<html>", kind="text/html; charset=utf-8")

    def announced(self) -> None:
        self.answer(b"x", length=10**9)

    def moved(self) -> None:
        self.send_to("/good", 301)

    def loop(self) -> None:
        self.send_to("/loop")

    def elsewhere(self) -> None:
        self.send_to(self.server.elsewhere)
