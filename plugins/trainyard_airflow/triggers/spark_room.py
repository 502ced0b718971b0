"""Waits in the triggerer until a cluster has room for a job."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from trainyard.errors import JobError
from trainyard_airflow.capacity import Demand
from trainyard_airflow.connection import resolve
from trainyard_airflow.masking import mask
from trainyard_airflow.room import MOST_SECONDS, NoRoomError, check_room

_POLL_SECONDS = 5.0


class SparkRoomTrigger(BaseTrigger):
    """Fire when the cluster has room, or when that took too long. There is nothing to kill yet.

    Args:
        conn_id: the Spark connection.
        demand: what the job asks, as plain JSON.
        since: when it began to wait, in seconds since the epoch.
    """

    def __init__(self, *, conn_id: str, demand: Mapping[str, Any], since: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._conn_id = conn_id
        self._demand = Demand(**demand)
        self._since = since

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class's path and arguments."""
        kind = type(self)
        arguments = {
            "conn_id": self._conn_id,
            "demand": dataclasses.asdict(self._demand),
            "since": self._since,
        }
        return f"{kind.__module__}.{kind.__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the master's page, and fire once.

        An error that the user can act on fires too: the task meets it again, and tells it.
        """
        told = ""
        while time.time() - self._since < MOST_SECONDS:
            try:
                master = await sync_to_async(resolve)(
                    self._conn_id, deploy_mode="cluster", binary=None
                )
                await asyncio.to_thread(check_room, master, self._demand, self.log, grace=0.0)
                break
            except NoRoomError as error:
                if str(error) != told:
                    told = str(error)
                    self.log.info("Waiting for room: %s", told)
            except JobError as error:
                self.log.info("There is nothing to wait for: %s", mask(str(error)))
                break
            except Exception as error:  # such as Airflow's API that does not answer
                self.log.warning("Whether there is room is not known now: %s", mask(str(error)))
            await asyncio.sleep(_POLL_SECONDS)
        yield TriggerEvent({})  # type: ignore[no-untyped-call]
