"""Registers Trainyard with Airflow; the only file of plugins/ that Airflow itself imports."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from trainyard_airflow import pool_guard
from trainyard_airflow.ui.app import PREFIX, LazyApp

_BASE = PREFIX.lstrip("/")
"""Relative, so that the UI puts its own base path before it."""


class TrainyardPlugin(AirflowPlugin):
    """What Trainyard adds to Airflow; its operators are imported from `trainyard_airflow`."""

    name = "trainyard"
    listeners = [pool_guard]  # noqa: RUF012 - as Airflow's base class has it, like those below
    fastapi_apps = [{"app": LazyApp(), "url_prefix": PREFIX, "name": "Trainyard"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Training",
            "href": f"{_BASE}/runs/{{DAG_ID}}/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "training",
        },
        {
            "name": "Progress",
            "href": f"{_BASE}/runs/{{DAG_ID}}/{{RUN_ID}}/tasks/{{TASK_ID}}/{{MAP_INDEX}}",
            "destination": "task_instance",
            "url_route": "progress",
        },
        {
            "name": "Models",
            "href": f"{_BASE}/models",
            "destination": "nav",
            "url_route": "models",
        },
    ]
