"""HTTP clients for the servers of a cluster: its masters' REST servers and web UIs."""

from __future__ import annotations

import ssl
from typing import TypeVar

import httpx

from trainyard.errors import JobError

Client = TypeVar("Client", httpx.Client, httpx.AsyncClient)

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""OpenSSL's reasons where a server answers in plain text."""


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


def check_tls(error: BaseException, server: str) -> None:
    """Tell a server that is not trusted, or speaks no TLS, from one that is away.

    Args:
        error: by which a request failed.
        server: scheme, host and port.

    Raises:
        JobError: no later request will do better.
    """
    cause = _ssl_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        raise JobError(
            f"the certificate of {server!r} is not trusted: {cause.verify_message}.",
            "Let SSL_CERT_FILE, in the environment of Airflow's services, name a file with the"
            " certificate of the authority that signed it.",
        ) from error
    if cause is not None and cause.reason in _NO_TLS:
        raise JobError(
            f"{server!r} does not speak TLS.",
            "Set rest-scheme, or web-scheme, of the connection's extra to http, or the port to"
            " the one that speaks TLS.",
        ) from error


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """The error of TLS that led to an error."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
