"""HTTP clients for the servers of a cluster: its masters' REST servers and web UIs."""

from __future__ import annotations

import ssl
from typing import TypeVar

import httpx

Client = TypeVar("Client", httpx.Client, httpx.AsyncClient)


def new_http(kind: type[Client], *, is_secure: bool, seconds: float) -> Client:
    """A client that ignores the proxies of the environment, which do not know a cluster's hosts.

    Args:
        kind: of the client.
        is_secure: whether the servers speak HTTPS.
        seconds: how long one request may take.
    """
    # A context with the system's authorities costs 20 ms, which plain HTTP need not pay.
    verify: ssl.SSLContext | bool = ssl.create_default_context() if is_secure else False
    # Each request looks at every connection of the pool; few serve hundreds of triggers.
    limits = httpx.Limits(max_connections=6, max_keepalive_connections=6)
    timeout = httpx.Timeout(seconds, pool=None)
    return kind(timeout=timeout, trust_env=False, verify=verify, limits=limits)
