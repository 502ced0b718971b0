"""Registers Trainyard with Airflow; the only file of plugins/ that Airflow itself imports."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from trainyard_airflow import pool_guard


class TrainyardPlugin(AirflowPlugin):
    """What Trainyard adds to Airflow; its operators are imported from `trainyard_airflow`."""

    name = "trainyard"
    listeners = [pool_guard]  # noqa: RUF012 - as Airflow's base class has it
