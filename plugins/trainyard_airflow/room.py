"""Room on a cluster for a driver and all its executors, before the driver takes a core."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from trainyard.errors import JobError
from trainyard.specs import RunDirectory
from trainyard_airflow import capacity
from trainyard_airflow.capacity import Demand
from trainyard_airflow.connection import SparkMaster
from trainyard_airflow.master_web import read_master
from trainyard_airflow.spark_conf import with_arguments

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

MOST_SECONDS = 900.0
"""How long a submission waits for room; then Spark's own queue takes it."""

_GRACE_SECONDS = 5.0
"""For the executors of the job before, which end a moment after their driver."""


class NoRoomError(Exception):
    """A submission has to wait: something else has the cores, or goes first."""


def check_room(
    master: SparkMaster, demand: Demand, log: Logger, *, grace: float | None = None
) -> None:
    """Check that a submission fits the cluster, and now.

    A master that does not lead yet, or has no workers yet, is waited for: it may have just started.

    Raises:
        TransientError: it would not fit the workers that are there if nothing else ran on them.
        NoRoomError: it does not fit now, nor after `grace` seconds (a few by default).
    """
    deadline = time.monotonic() + (_GRACE_SECONDS if grace is None else grace)
    while True:
        try:
            state = read_master(master.web, timeout=3.0)
        except JobError as error:
            log.warning("Whether the job fits the cluster was not checked. %s", error)
            return
        if state.is_ready:
            capacity.check_fits(demand, state)
        reason = capacity.why_wait(demand, state)
        if reason is None:
            return
        if time.monotonic() > deadline:
            raise NoRoomError(reason)
        time.sleep(0.5)


def demand_of(conf: Mapping[str, Any], hook: SparkSubmitHook, job: RunDirectory) -> Demand:
    """What a job asks of a cluster that runs its driver too.

    Args:
        conf: Spark configuration.
        hook: the provider's hook; see `with_arguments`.
        job: the job.

    Raises:
        JobError: the settings cannot be read, or exclude each other.
    """
    settings = {name: str(value) for name, value in with_arguments(conf, hook).items()}
    return capacity.demand(settings, job, driver_on_cluster=True)
