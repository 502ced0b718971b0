"""The ASGI app of the pages as Airflow mounts it: made when the first page is asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI

PREFIX = "/trainyard"
"""Where Airflow mounts the app, below its own base path."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class LazyApp:
    """The app, which costs nothing where no page is asked for: workers import plugins too."""

    def __init__(self) -> None:
        self._app: FastAPI | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the app does."""
        if self._app is None:
            from trainyard_airflow.ui.site import make_app

            self._app = make_app()
        await self._app(scope, receive, send)
