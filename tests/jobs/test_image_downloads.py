"""Downloads from a server that misbehaves, and which hosts and addresses may be asked at all."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bad_server import BadServer, serving
from image_files import DAISY

from trainyard.images import fetching
from trainyard.images.fetching import Fetcher
from trainyard.images.hosts import Place
from trainyard.images.pixels import BadImageError, Limits


@pytest.fixture(scope="module")
def server() -> Iterator[BadServer]:
    with serving() as found:
        yield found


@pytest.fixture
def waits() -> list[float]:
    """How long was waited before each further try."""
    return []


@pytest.fixture
def fetcher(server: BadServer, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> Fetcher:
    monkeypatch.setattr(fetching, "_WHOLE", 2)
    server.asked.clear()
    limits = Limits(bytes=400_000, hosts=(server.host,), timeout=0.5, connections=2)
    return Fetcher(limits, sleep=waits.append)


def refusal(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(BadImageError) as caught:
        fetcher.fetch(url)
    return str(caught.value)


def test_an_image_is_fetched_redirects_followed(fetcher: Fetcher, server: BadServer) -> None:
    for way in ("good", "moved", "untyped", "good/ä ö?x=ü"):
        assert fetcher.fetch(server.url(way)) == DAISY.read_bytes()


@pytest.mark.parametrize(
    ("way", "reason", "tries"),
    [
        ("silent", "no answer within 0.5 s", 3),
        ("drips", "no answer within 0.5 s", 3),
        ("drips_headers", "no answer within 0.5 s", 3),
        ("overloaded", "status 503", 3),
        ("cut", "the answer was cut off", 3),
        ("cut_chunk", "the answer was cut off", 3),
        ("hangs_up", "the connection failed", 3),
        ("missing", "status 404", 1),
        ("rubbish", "the answer is not HTTP", 1),
        ("page", "the answer is text/html, no image", 1),
        ("announced", "more than 400000 bytes", 1),
        ("endless", "more than 400000 bytes", 1),
        ("loop", "more than 5 redirects", 6),
    ],
)
def test_what_cannot_be_had_says_why(
    fetcher: Fetcher, server: BadServer, waits: list[float], way: str, reason: str, tries: int
) -> None:
    began = time.monotonic()
    assert reason in refusal(fetcher, server.url(way))
    assert server.asked[way] == tries
    assert time.monotonic() - began < 8
    assert len(waits) == (2 if tries == 3 else 0)
    assert waits == sorted(waits), "each wait is longer than the one before"


def test_what_passes_is_tried_again(fetcher: Fetcher, server: BadServer) -> None:
    assert len(fetcher.fetch(server.url("flaky"))) > 100_000
    assert server.asked["flaky"] == 3


def test_a_host_is_asked_by_so_many_at_a_time(fetcher: Fetcher, server: BadServer) -> None:
    server.together = 0
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fetcher.fetch, [server.url("slowly")] * 8))
    assert server.together == 2


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("http://169.254.169.254/latest/meta-data", "not in 'allowed_hosts'"),
        ("http://127.0.0.1:1/", "not in 'allowed_hosts'"),
        ("ftp://127.0.0.1/x", "ftp:// is not fetched"),
        ("file:///etc/passwd", "file:// is not fetched"),
        ("http://me:secret@127.0.0.1/x", "holds a password"),
    ],
)
def test_a_redirect_is_checked_like_the_url_itself(
    fetcher: Fetcher, server: BadServer, place: str, reason: str
) -> None:
    server.elsewhere = place
    told = refusal(fetcher, server.url("elsewhere"))
    assert reason in told
    assert "secret" not in told


class TestHosts:
    @pytest.mark.parametrize(
        ("url", "allowed"),
        [
            ("https://images.example.com/a.jpg", ["images.example.com"]),
            ("https://IMAGES.example.com./a.jpg", ["Images.Example.com"]),
            ("https://a.b.example.com/x", ["*.example.com"]),
            ("http://localhost:8000/x", ["localhost:8000"]),
            ("http://[::1]:8000/x", ["[::1]:8000"]),
            ("https://any.where/x", ["*"]),
            ("https://münchen.example/x", ["xn--mnchen-3ya.example"]),
            ("https://xn--mnchen-3ya.example/x", ["München.example."]),
            ("http://[0:0::1]/x", ["[::1]"]),
        ],
    )
    def test_a_host_that_is_allowed(self, url: str, allowed: list[str]) -> None:
        assert Place.of(url, allowed).target in ("/x", "/a.jpg")

    @pytest.mark.parametrize(
        ("url", "allowed"),
        [
            ("https://images.example.com/a.jpg", []),
            ("https://example.com.evil.org/x", ["example.com", "*.example.com"]),
            ("https://evilexample.com/x", ["*.example.com"]),
            ("https://example.com:22/x", ["example.com", "*"]),
            ("http://example.com\\@evil.org/x", ["example.com", "*"]),
            ("http://example.com@evil.org/x", ["*"]),
            ("https://[::1/x", ["*"]),
            ("https:///x", ["*"]),
            ("https://example.com:99999/x", ["*"]),
            ("gopher://example.com/x", ["*"]),
        ],
    )
    def test_a_host_that_is_not(self, url: str, allowed: list[str]) -> None:
        with pytest.raises(BadImageError):
            Place.of(url, allowed)

    @pytest.mark.parametrize(
        ("address", "by_name", "by_pattern"),
        [
            ("93.184.215.14", True, True),
            ("10.0.0.5", True, False),
            ("127.0.0.1", True, False),
            ("::ffff:127.0.0.1", True, False),
            ("::1", True, False),
            ("fd00::1", True, False),
            ("169.254.169.254", False, False),
            ("fe80::1%eth0", False, False),
            ("0.0.0.0", False, False),
            ("64:ff9b::a9fe:a9fe", False, False),
            ("64:ff9b::5db8:d70e", True, True),
            ("2002:7f00:1::", True, False),
            ("::127.0.0.1", True, False),
            ("168.63.129.16", False, False),
            ("fd00:ec2::254", False, False),
        ],
    )
    def test_a_name_may_lead_to_some_addresses(
        self, monkeypatch: pytest.MonkeyPatch, address: str, by_name: bool, by_pattern: bool
    ) -> None:
        def answer(*_: Any, **__: Any) -> Any:
            return [(None, None, None, "", (address, 443))]

        monkeypatch.setattr(socket, "getaddrinfo", answer)
        for allowed, may in (("a.example.com", by_name), ("*.example.com", by_pattern)):
            place = Place.of("https://a.example.com/x", [allowed])
            if may:
                assert place.addresses(1.0) == [address]
            else:
                with pytest.raises(BadImageError, match="not public"):
                    place.addresses(1.0)

    def test_one_bad_address_of_several_is_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = [(None, None, None, "", (a, 80)) for a in ("93.184.215.14", "10.0.0.5")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(BadImageError, match="not public"):
            Place.of("http://a.example.com/", ["*"]).addresses(1.0)

    def test_a_host_of_two_families_is_tried_by_both(
        self, monkeypatch: pytest.MonkeyPatch, server: BadServer
    ) -> None:
        found = [(None, None, None, "", (a, 80)) for a in ("::1", "::1", "127.0.0.1")]
        monkeypatch.setattr("trainyard.images.hosts._resolved", lambda *_: found)
        host = f"localhost:{server.server_port}"
        assert Place.of(f"http://{host}/", [host]).addresses(1.0) == ["::1", "127.0.0.1"]
        limits = Limits(bytes=10**6, hosts=(host,), retries=0)
        assert Fetcher(limits).fetch(f"http://{host}/good")

    def test_a_name_that_nobody_answers_for_holds_up_no_other(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        over = threading.Event()

        def answer(host: str, *_: Any, **__: Any) -> Any:
            if host == "silent.example":
                over.wait(20)
            return [(None, None, None, "", ("93.184.215.14", 80))]

        monkeypatch.setattr(socket, "getaddrinfo", answer)
        try:
            for _ in range(9):
                with pytest.raises(TimeoutError):
                    Place.of("http://silent.example/", ["*"]).addresses(0.01)
            assert Place.of("http://a.example/", ["*"]).addresses(1.0) == ["93.184.215.14"]
        finally:
            over.set()

    def test_a_number_is_no_way_around(self) -> None:
        for host in ("2130706433", "0x7f.1", "127.1"):
            with pytest.raises((BadImageError, OSError)):
                Place.of(f"http://{host}/", ["*"]).addresses(1.0)

    def test_the_address_that_was_checked_is_connected_to(
        self, monkeypatch: pytest.MonkeyPatch, server: BadServer
    ) -> None:
        """A name that leads elsewhere at a second look-up changes nothing."""
        real, asked = socket.getaddrinfo, []

        def rebinding(host: str, *rest: Any, **more: Any) -> Any:
            asked.append(host)
            leads_to = "127.0.0.1" if host == "rebinding.example" else host
            return real(leads_to, *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        port = server.server_port
        limits = Limits(bytes=10**6, hosts=(f"rebinding.example:{port}",))
        assert Fetcher(limits).fetch(f"http://rebinding.example:{port}/good")
        assert asked.count("rebinding.example") == 1
