"""Waits in the triggerer until a driver on a Spark standalone cluster has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import httpx
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from trainyard_airflow.cluster_http import new_http
from trainyard_airflow.connection import RestServer, rest_server
from trainyard_airflow.drivers import Driver
from trainyard_airflow.ending import end_driver, is_over, task_state
from trainyard_airflow.rest import REQUEST_SECONDS, RestClient
from trainyard_airflow.waiting import Waiting


class SparkDriverTrigger(BaseTrigger):
    """Fire when a driver has ended, or when it was ended at the task's deadline.

    Args:
        driver: the driver and the task that waits for it, as plain JSON.
        deadline: when the task's execution_timeout is over, in seconds since the epoch. Airflow
            does not enforce it while a task is deferred.
    """

    def __init__(self, *, driver: Mapping[str, Any], deadline: float | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._driver = Driver.from_mapping(driver)
        self._deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class's path and arguments."""
        kind = type(self)
        return (
            f"{kind.__module__}.{kind.__qualname__}",
            {"driver": self._driver.to_mapping(), "deadline": self._deadline},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the end, and fire once."""
        waiting = Waiting(driver=self._driver, deadline=self._deadline)
        warming = asyncio.create_task(self._warm_up())
        try:
            event = await waiting.until_end(self._connect, self.log)
        finally:
            warming.cancel()
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """End the driver if its task is over; see `is_over` for why the state is asked."""
        # Airflow cancels this method anew every second or so until it returns, and takes no notice
        # of what it was doing: the work is a task of its own, which goes on.
        work = asyncio.create_task(self._end_if_over())
        _ending.add(work)
        work.add_done_callback(_ending.discard)
        await asyncio.shield(work)

    async def _end_if_over(self) -> None:
        try:
            state = await sync_to_async(task_state)(self._driver)
            if not is_over(state):
                self.log.info("Driver %s stays: its task is %s.", self._driver, state)
                return
            self.log.info("Ending driver %s: its task is %s.", self._driver, state or "cleared")
            await end_driver(await self._connect(), self._driver, patience=_KILL_SECONDS)
            self.log.info("Driver %s has ended.", self._driver)
        except Exception:
            self.log.exception("Driver %s was not ended.", self._driver)

    async def _warm_up(self) -> None:
        """Ask for the task's state once a triggerer: its first question loads Airflow's API.

        That takes seconds, in which a driver that is to be killed would go on.
        """
        loop = asyncio.get_running_loop()
        if loop not in _warm:
            _warm.add(loop)
            with contextlib.suppress(Exception):
                await sync_to_async(task_state)(self._driver)

    async def _connect(self) -> RestClient:
        server = await sync_to_async(rest_server)(self._driver.conn_id)
        return RestClient(server, http=_shared_http(server))


_KILL_SECONDS = 25.0

_ending: set[asyncio.Task[None]] = set()
"""What ends drivers now; a loop alone would not keep it."""

_warm: WeakSet[asyncio.AbstractEventLoop] = WeakSet()

_Clients = dict[bool, httpx.AsyncClient]
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()


def _shared_http(server: RestServer) -> httpx.AsyncClient:
    """The client of all triggers in this loop, so that they share its connections."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if server.is_secure not in clients:
        clients[server.is_secure] = new_http(
            httpx.AsyncClient, is_secure=server.is_secure, seconds=REQUEST_SECONDS
        )
    return clients[server.is_secure]
