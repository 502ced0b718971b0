"""From which hosts images may be downloaded, and to which addresses their names may lead.

A list of URLs comes from others, and the job's machine reaches what they do not: a cloud's metadata
address, a database, another service of the same machine. Only hosts that are allowed are asked, on
the usual ports, and the address that was checked is the one that is connected to.

    images.example.com         this host
    *.example.com, *           every host of a domain, every host; at public addresses only
    127.0.0.1:8000             another port than 80 for http and 443 for https
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any, Self
from urllib.parse import SplitResult, quote, urlsplit

from trainyard.images.pixels import BadImageError

_PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~?-._"
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = tuple(map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "fd00:ec2::254")))
"""Where clouds tell a machine's secrets, besides link-local addresses."""

_PUBLIC_6 = ipaddress.ip_network("2000::/3")
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses by which a network without IPv4 reaches an IPv4 one: their last 32 bits."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a URL leads, as far as its text tells.

    Attributes:
        scheme: http or https.
        host: its name or address, in ASCII.
        port: the number.
        target: path and query, as a request names them.
        named: whether the host was allowed by its own name.
    """

    scheme: str
    host: str
    port: int
    target: str
    named: bool

    @classmethod
    def of(cls, url: str, allowed: Sequence[str]) -> Self:
        """Read a URL.

        Raises:
            BadImageError: it is none of http or https, or its host is not allowed.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS.get(parts.scheme, 0)
            host = _spelled(parts.hostname or "")
        except ValueError as error:  # UnicodeError is one
            raise BadImageError("the URL is none") from error
        if parts.scheme not in _PORTS:
            raise BadImageError(f"{parts.scheme or 'no scheme'}:// is not fetched: use https")
        if "@" in parts.netloc:
            raise BadImageError("the URL holds a password")
        if not host:
            raise BadImageError("the URL is none")
        named = _is_named(host, port, parts.scheme, allowed)
        if named is None:
            raise BadImageError("the URL's host is not in 'allowed_hosts'")
        return cls(scheme=parts.scheme, host=host, port=port, target=_target(parts), named=named)

    def addresses(self, timeout: float) -> list[str]:
        """The addresses to connect to: the first, and one of the other family if there is any.

        Raises:
            BadImageError: the host leads to an address that it may not lead to.
            OSError: the host has no address, or nobody says which.
        """
        found = [str(answer[4][0]) for answer in _resolved(self.host, self.port, timeout)]
        for text in found:
            if not self._may_reach(ipaddress.ip_address(text.partition("%")[0])):
                raise BadImageError("the URL's host leads to an address that is not public")
        others = [text for text in found if (":" in text) != (":" in found[0])]
        return [*found[:1], *others[:1]]

    def _may_reach(self, address: Address) -> bool:
        plain = _without_wrapping(address)
        if self.named and str(plain) == self.host:
            return True
        if plain.is_link_local or plain.is_multicast or plain.is_unspecified or plain in _METADATA:
            return False  # most clouds' metadata address is link-local
        is_public = plain.is_global and (plain.version == 4 or plain in _PUBLIC_6)
        return self.named or is_public


def _without_wrapping(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) % 2**32)
    return address.ipv4_mapped or address.sixtofour or address


def _is_named(host: str, port: int, scheme: str, allowed: Sequence[str]) -> bool | None:
    """Whether a host is allowed by its own name; None where it is not allowed at all."""
    found = None
    for entry in allowed:
        name, number = split_entry(entry)
        if port != (number or _PORTS[scheme]):
            continue
        if name == host:
            return True
        if name == "*" or (name.startswith("*.") and host.endswith(name[1:])):
            found = False
    return found


@cache
def split_entry(entry: str) -> tuple[str, int | None]:
    """The name and the port of an entry of `allowed_hosts`; an IPv6 address may be in brackets.

    Raises:
        ValueError: no host is meant by it.
    """
    name, colon, number = entry.strip().rpartition(":")
    if not colon or (":" in name and not name.endswith("]")):
        name, colon, number = entry.strip(), "", ""
    if colon and not (number.isdecimal() and 0 < int(number) < 65_536):
        raise ValueError(f"{number!r} is no port")
    port = int(number) if colon else None
    if name == "*":
        return name, port
    star = "*." if name.startswith("*.") else ""
    host = _spelled(name.removeprefix(star).strip("[]"))
    if not (_NAME.fullmatch(host) or (_is_address(host) and not star)):
        raise ValueError(f"{host!r} is no host")
    return star + host, port


def _spelled(host: str) -> str:
    """The one spelling, in ASCII, of all those of a host's name or address.

    Raises:
        ValueError: it cannot be a name.
    """
    name = host.lower().rstrip(".")
    return str(ipaddress.ip_address(name)) if _is_address(name) else name.encode("idna").decode()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _target(parts: SplitResult) -> str:
    path = quote(parts.path or "/", safe=_SAFE)
    return f"{path}?{quote(parts.query, safe=_SAFE)}" if parts.query else path


def _resolved(host: str, port: int, timeout: float) -> list[Any]:
    """What `socket.getaddrinfo` answers within a time, which it cannot be given.

    Each look-up has a thread of its own: a name that nobody answers for holds up no other.
    """
    found: Future[list[Any]] = Future()

    def ask() -> None:
        try:
            found.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:
            found.set_exception(error)

    threading.Thread(target=ask, name="resolver", daemon=True).start()
    return found.result(timeout)
