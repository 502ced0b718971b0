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
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Self
from urllib.parse import SplitResult, quote, urlsplit

from trainyard.images.pixels import BadImageError

_PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~?-._"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


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
            host = (parts.hostname or "").rstrip(".").encode("idna").decode()
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

    def address(self, timeout: float) -> str:
        """The address to connect to.

        Raises:
            BadImageError: the host leads to an address that it may not lead to.
            OSError: the host has no address, or nobody says which.
        """
        # The system's own resolver cannot be given a time.
        found = _resolver().submit(
            socket.getaddrinfo, self.host, self.port, type=socket.SOCK_STREAM
        )
        addresses = [str(answer[4][0]) for answer in found.result(timeout)]
        for text in addresses:
            if not self._may_reach(ipaddress.ip_address(text.partition("%")[0])):
                raise BadImageError("the URL's host leads to an address that is not public")
        return addresses[0]

    def _may_reach(self, address: Address) -> bool:
        plain: Address = getattr(address, "ipv4_mapped", None) or address
        if str(plain) == self.host:
            return self.named or plain.is_global
        if plain.is_link_local or plain.is_multicast or plain.is_unspecified:
            return False  # a cloud's metadata address is one of these
        return self.named or plain.is_global


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


def split_entry(entry: str) -> tuple[str, int | None]:
    """The name and the port of an entry of `allowed_hosts`; an IPv6 address may be in brackets."""
    text = entry.strip().lower()
    name, _, number = text.rpartition(":")
    if number.isdigit() and name and (":" not in name or name.endswith("]")):
        return name.strip("[]"), int(number)
    return text.strip("[]"), None


def _target(parts: SplitResult) -> str:
    path = quote(parts.path or "/", safe=_SAFE)
    return f"{path}?{quote(parts.query, safe=_SAFE)}" if parts.query else path


@cache
def _resolver() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4, thread_name_prefix="resolver")


def is_url(path: str) -> bool:
    """Whether an image's name is a URL to download, whatever its scheme is worth."""
    return path.lower().startswith(("http://", "https://", "ftp://", "ftps://"))
