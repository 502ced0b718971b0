"""Downloads an image: from an allowed host, of a bounded size, in bounded time."""

from __future__ import annotations

import random
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from urllib.parse import urljoin

from trainyard.images.hosts import Place
from trainyard.images.pixels import BadImageError, Limits

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_WHOLE = 10
"""A whole download may take this many times `Limits.timeout`, however steadily bytes drip."""

_PIECE = 65_536
_BACKOFF_SECONDS = 0.2
_CUT_OFF = "the answer was cut off"
_NOT_TOLD = ("application/octet-stream", "binary/octet-stream")
"""Types of what a server, or S3, was not told the type of."""

_HEADERS = {"User-Agent": "trainyard", "Accept": "image/*", "Accept-Encoding": "identity"}


class _PassingError(Exception):
    """A download that failed and may succeed the next time; its text says why."""


class Fetcher:
    """Downloads images; threads share it.

    Args:
        limits: what a download may cost, and from where.
        sleep: waits before another try.
    """

    def __init__(self, limits: Limits, sleep: Callable[[float], None] = time.sleep) -> None:
        self._limits = limits
        self._sleep = sleep
        self._hosts: defaultdict[str, threading.Semaphore] = defaultdict(
            lambda: threading.Semaphore(limits.connections)
        )
        self._lock = threading.Lock()

    def fetch(self, url: str) -> bytes:
        """The body of what a URL names, redirects followed and each checked like the first.

        Raises:
            BadImageError: it cannot be had; the last reason, if it was tried several times.
        """
        for attempt in range(self._limits.retries + 1):
            try:
                return self._follow(url)
            except _PassingError as error:
                if attempt == self._limits.retries:
                    raise BadImageError(str(error)) from error
                jitter = random.uniform(0.75, 1.25)  # noqa: S311 - no secret
                self._sleep(_BACKOFF_SECONDS * 2**attempt * jitter)
        raise AssertionError("unreachable")

    def _follow(self, url: str) -> bytes:
        for _ in range(_MOST_REDIRECTS + 1):
            found = self._get(Place.of(url, self._limits.hosts))
            if isinstance(found, bytes):
                return found
            url = urljoin(url, found)
        raise BadImageError(f"more than {_MOST_REDIRECTS} redirects")

    def _get(self, place: Place) -> bytes | str:
        """The body, or where a redirect leads."""
        timeout = self._limits.timeout
        try:
            with self._turn(place.host):
                connection = _Connection(place, place.addresses(timeout), timeout)
                with connection.limited(_WHOLE * timeout):
                    connection.request("GET", place.target, headers=_HEADERS)
                    return self._answer(connection.getresponse())
        except TimeoutError as error:
            raise _PassingError(f"no answer within {timeout:g} s") from error
        except ssl.SSLCertVerificationError as error:
            raise BadImageError("the host's certificate is not valid") from error
        except socket.gaierror as error:
            raise _PassingError("the URL's host has no address") from error
        except OSError as error:
            raise _PassingError(f"the connection failed ({type(error).__name__})") from error
        except IncompleteRead as error:
            raise _PassingError(_CUT_OFF) from error
        except (HTTPException, ValueError) as error:
            raise BadImageError(f"the answer is not HTTP ({type(error).__name__})") from error

    def _turn(self, host: str) -> threading.Semaphore:
        with self._lock:
            return self._hosts[host]

    def _answer(self, response: HTTPResponse) -> bytes | str:
        status, location = response.status, response.getheader("Location")
        if status in _REDIRECTS and location:
            return location
        if status in _AGAIN:
            raise _PassingError(f"the answer is status {status}")
        if status != 200:
            raise BadImageError(f"the answer is status {status}")
        kind = response.headers.get_content_type()
        is_named = response.getheader("Content-Type") is not None
        if is_named and not kind.startswith("image/") and kind not in _NOT_TOLD:
            raise BadImageError(f"the answer is {kind}, no image")
        return self._body(response)

    def _body(self, response: HTTPResponse) -> bytes:
        most = self._limits.bytes
        if (response.length or 0) > most:
            raise BadImageError(too_large(most))
        pieces, size = [], 0
        while piece := response.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise BadImageError(too_large(most))
        if response.length:
            raise _PassingError(_CUT_OFF)
        return b"".join(pieces)


def too_large(most: int) -> str:
    """What is wrong with an image of more bytes than it may have."""
    return f"the image has more than {most} bytes"


class _Connection(HTTPConnection):
    """A connection to one of the addresses that were checked, by the name that was asked for."""

    def __init__(self, place: Place, addresses: Sequence[str], timeout: float) -> None:
        super().__init__(place.host, place.port, timeout=timeout)
        self.default_port = 443 if place.scheme == "https" else 80  # for the header Host
        self._place = place
        self._addresses = addresses
        self._link: socket.socket | None = None
        self._was_cut = False

    def connect(self) -> None:
        plain = self._reached()
        self._link = plain
        if self._place.scheme == "https":
            self._link = _tls().wrap_socket(plain, server_hostname=self._place.host)
        self.sock = self._link

    def _reached(self) -> socket.socket:
        *others, last = self._addresses
        for address in others:
            with suppress(OSError):
                return socket.create_connection((address, self._place.port), self.timeout)
        return socket.create_connection((last, self._place.port), self.timeout)

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Let what the block does take so long, however steadily bytes or headers drip.

        Raises:
            TimeoutError: it took longer.
        """
        watch = threading.Timer(seconds, self._cut)
        watch.daemon = True
        watch.start()
        try:
            yield
        except (OSError, HTTPException, _PassingError) as error:
            if self._was_cut:
                raise TimeoutError from error
            raise
        finally:
            watch.cancel()
            self.close()
        if self._was_cut:
            raise TimeoutError

    def _cut(self) -> None:
        self._was_cut = True
        if self._link is not None:
            with suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
