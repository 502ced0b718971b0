"""Airflow's public REST API, as much of it as a run of a DAG needs."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

_TRIES = 5
_BUSY = (500, 502, 503, 504)


class ApiError(Exception):
    """The API refused a request.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """A session with one Airflow, logged in.

    Args:
        url: address of the UI.
        user: who logs in.
        password: their password.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url = url
        # A proxy that the environment names does not know this machine's ports.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self._token = ""
        login = {"username": user, "password": password}
        self._token = self._request("POST", "/auth/token", login)["access_token"]

    def get(self, *path: str, **query: object) -> Any:
        """Read: the path's parts are quoted."""
        return self._request("GET", _api(path) + (f"?{urlencode(query)}" if query else ""), None)

    def post(self, *path: str, body: Mapping[str, Any]) -> Any:
        """Make something."""
        return self._request("POST", _api(path), body)

    def patch(self, *path: str, body: Mapping[str, Any]) -> Any:
        """Change something."""
        return self._request("PATCH", _api(path), body)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the address is this machine's
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"},
        )
        for tries_left in reversed(range(_TRIES)):
            try:
                with self._open(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                text = error.read().decode(errors="replace")
                # Only reading can be repeated without doing a thing twice.
                if method != "GET" or error.code not in _BUSY or not tries_left:
                    raise ApiError(error.code, text) from error
            except OSError as error:
                if method != "GET" or not tries_left:
                    raise ApiError(0, f"{self._url} does not answer: {error}") from error
            time.sleep(1)
        raise AssertionError("the last try raised")


def _api(path: tuple[str, ...]) -> str:
    return "/api/v2/" + "/".join(quote(part, safe="~") for part in path)
