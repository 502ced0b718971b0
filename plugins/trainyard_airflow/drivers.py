"""Drivers that tasks wait for: who waits for which, told so that anyone can end a lost one."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from trainyard import store
from trainyard.layout import join, safe_name
from trainyard_airflow import settings


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A driver on a cluster and the task that waits for it; plain JSON, without a secret.

    Attributes:
        submission: the master's id of it; empty while it is being submitted.
        ticket: number of its ticket for the run directory.
        earlier_claim: number of the last claim on the directory before it.
        submitted: when, in seconds since the epoch.
        run_dir: where it works.
        generation: of the task; a clear changes it and a retry does not.
        conn_id: the Spark connection, which names the master and holds the token.
        dag_id: of the task, as are `run_id`, `task_id` and `map_index` (-1 unless mapped).
    """

    submission: str
    ticket: int
    earlier_claim: int
    submitted: float
    run_dir: str
    generation: int
    conn_id: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """The driver that `to_mapping` wrote down."""
        return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON."""
        return dataclasses.asdict(self)

    @property
    def task(self) -> tuple[str, str, str, int]:
        """The task instance that waits for it, whatever its generation."""
        return (self.dag_id, self.run_id, self.task_id, self.map_index)

    def __str__(self) -> str:
        return self.submission or f"of ticket {self.ticket} for {self.run_dir}"


_log = logging.getLogger(__name__)


def record(driver: Driver) -> None:
    """Write down who waits for a driver, in the place of an earlier one of its directory."""
    store.write_json(_uri(driver.run_dir), driver.to_mapping())


def forget(driver: Driver) -> None:
    """Nobody needs to end the driver any more."""
    store.remove(_uri(driver.run_dir))


def recorded() -> Iterator[Driver]:
    """Every driver that is written down; what is none is left where it is, and said."""
    for name in store.list_names(_index()):
        if not name.endswith(".json"):
            continue  # a run of a DAG of that name
        try:
            yield Driver.from_mapping(store.read_json(join(_index(), name)))
        except FileNotFoundError:
            continue  # its task ended meanwhile
        except (TypeError, ValueError) as error:
            _log.warning("%s is no record of a driver: %s", join(_index(), name), error)


def _index() -> str:
    return join(settings.store_root(), "drivers")


def _uri(run_dir: str) -> str:
    return join(_index(), f"{safe_name(run_dir)}.json")
