"""A site for tests: the plugin's app as Airflow mounts it, Airflow's tables, and run directories.

What lies in the run directories was written by the jobs' own writers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow import settings as airflow_settings
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import scoped_session, sessionmaker
from sqlalchemy.pool import StaticPool

from trainyard import rundir, store
from trainyard.layout import join, run_directory
from trainyard_airflow.ui.app import PREFIX
from trainyard_airflow.ui.site import make_app

BEGAN = datetime.now(UTC) - timedelta(hours=1)
DAG = "mnist_horovod"
RUN = "manual__2026-11-30T03:37:52+00:00"


class RightsPerDag(SimpleAuthManager):
    """An auth manager that knows rights by DAG, as FAB's does: each user may read one.

    `rights` names each user's DAG, `*` for all; who has none there may list DAG, but not its runs.
    """

    rights: Mapping[str, str]

    def is_authorized_dag(self, **asked: Any) -> bool:
        details: DagDetails | None = asked.get("details")
        own = self.rights.get(asked["user"].username)
        return own == "*" or (details is not None and own == details.id)

    def get_authorized_dag_ids(self, **asked: Any) -> set[str]:
        own = self.rights.get(asked["user"].username)
        return {DAG, "flights"} if own == "*" else {own or DAG}


class Site:
    """The pages, for a browser that has a session or none."""

    def __init__(self, home: Path, monkeypatch: Any) -> None:
        self.root = str(home / "store")
        monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", self.root)
        monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "a secret of the tests, " * 4)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.db")
        self.engine = create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
        import_all_models()  # type: ignore[no-untyped-call]
        Base.metadata.create_all(self.engine)
        session = sessionmaker(self.engine, expire_on_commit=False)
        monkeypatch.setattr(airflow_settings, "engine", self.engine)
        monkeypatch.setattr(airflow_settings, "Session", scoped_session(session))
        monkeypatch.setattr(airflow_settings, "NonScopedSession", session)
        self.auth = RightsPerDag()  # type: ignore[no-untyped-call]
        self.auth.rights = {"admin": "*", "mnist": DAG, "flights": "flights"}
        monkeypatch.setattr(airflow_app._AuthManagerState, "instance", self.auth)
        self.app = FastAPI()
        self.app.mount(PREFIX, make_app())

    def browser(self, user: str | None = "admin") -> TestClient:
        """A client with that user's session; without any for None."""
        cookies = {}
        if user is not None:
            token = self.auth.generate_jwt(SimpleAuthManagerUser(username=user, role="viewer"))
            cookies[COOKIE_NAME_JWT_TOKEN] = token
        return TestClient(self.app, cookies=cookies, raise_server_exceptions=False)

    def get(self, path: str, user: str | None = "admin") -> Any:
        """The JSON of a route that must answer."""
        answer = self.browser(user).get(f"{PREFIX}/api{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def add_run(
        self, state: str = "success", *, dag_id: str = DAG, run_id: str = RUN, at: float = 0
    ) -> None:
        """Put a DAG run into Airflow's tables."""
        with self.engine.begin() as connection:
            connection.execute(
                insert(DagRun.__table__).values(
                    dag_id=dag_id,
                    run_id=run_id,
                    run_type="manual",
                    state=state,
                    run_after=BEGAN + timedelta(seconds=at),
                    start_date=BEGAN,
                    clear_number=0,
                    **_needed(DagRun),
                )
            )

    def add_task(
        self,
        task_id: str,
        state: str | None = "success",
        *,
        at: float = 0,
        seconds: float = 30,
        weight: int = 1,
        generation: int = 2,
        map_index: int = -1,
        attempt: int = 1,
        dag_id: str = DAG,
        run_id: str = RUN,
    ) -> str:
        """Put a task of the run into Airflow's tables; return its run directory."""
        start = BEGAN + timedelta(seconds=at)
        over = state in ("success", "failed", "up_for_retry")
        with self.engine.begin() as connection:
            connection.execute(
                insert(TaskInstance.__table__).values(
                    task_id=task_id,
                    dag_id=dag_id,
                    run_id=run_id,
                    map_index=map_index,
                    state=state,
                    operator="SparkJobOperator",
                    start_date=None if state in (None, "queued", "scheduled") else start,
                    end_date=start + timedelta(seconds=seconds) if over else None,
                    try_number=attempt,
                    max_tries=generation,
                    priority_weight=weight,
                    **_needed(TaskInstance),
                )
            )
        return run_directory(
            self.root,
            dag_id=dag_id,
            run_id=run_id,
            task_id=task_id,
            map_index=map_index,
            generation=generation,
        )


def _needed(model: Any) -> dict[str, Any]:
    """Values for columns that must have one and of which the pages know nothing."""
    import uuid

    known = {"pool": "default_pool", "pool_slots": 1, "executor_config": b"", "queue": "default"}
    columns = model.__table__.columns.keys()
    found = {name: value for name, value in known.items() if name in columns}
    if model is TaskInstance:
        found["id"] = uuid.uuid4()
        found["try_id"] = uuid.uuid4()
        found["executor_config"] = {}
    return {name: value for name, value in found.items() if name in columns}


def write_training(
    run_dir: str,
    epochs: int,
    *,
    of: int | None = None,
    start: int = 1,
    claim: int = 1,
    unit: str = "epoch",
) -> None:
    """The events of a training that has done some of its epochs."""
    events = rundir.EventWriter(run_dir, claim=claim, writer="rank0", every=3600)
    for epoch in range(start, epochs + 1):
        loss = 2 / math.sqrt(epoch)
        figures = {
            "loss": loss,
            "accuracy": 1 - 0.5 / epoch,
            "validation_loss": loss + 0.001 * max(0, epoch - 20),
            "validation_accuracy": 0.98 - 0.5 / epoch,
            "rows_per_second": 10_000.0 + epoch % 7,
        }
        events.metric(epoch, **figures)
        events.progress("train", epoch, of or epochs, unit, **figures)
    events.close()


def write_result(run_dir: str, job: str, **fields: Any) -> None:
    """The manifest of a job that is done."""
    settings = fields.pop("settings", {})
    rundir.write_result(
        run_dir,
        {
            "job": job,
            "claim": 1,
            "started": BEGAN.timestamp(),
            "finished": BEGAN.timestamp() + 30,
            "settings": settings,
            **fields,
        },
    )


def metric(value: float) -> dict[str, float]:
    """A metric with an interval."""
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def write_evaluation(run_dir: str, version: str = "7", *, accuracy: float = 0.97) -> None:
    """An evaluation of a classifier with three classes, and the gate's verdict."""
    result = {
        "task": "classification",
        "model": {"uri": f"models:/mnist/{version}", "name": "mnist", "version": version},
        "metrics": {"accuracy": metric(accuracy), "log_loss": metric(0.1)},
        "champion": {
            "uri": "models:/mnist/4",
            "name": "mnist",
            "version": "4",
            "metrics": {"accuracy": metric(0.96), "log_loss": metric(0.12)},
        },
        "differences": {"accuracy": metric(accuracy - 0.96), "log_loss": metric(-0.02)},
        "comparison": None,
        "slices": {},
        "rows": {"test": 1020},
    }
    report = join(run_dir, "report")
    store.write_json(join(report, "metrics.json"), result)
    store.write_json(
        join(report, "verdict.json"),
        {
            "promoted": True,
            "mode": "enforce",
            "champion": {"name": "mnist", "version": version},
            "challenger": {"name": "mnist", "version": version},
            "verdict": [
                {
                    "name": "accuracy",
                    "passed": True,
                    "measured": accuracy,
                    "wanted": ">= 0.9",
                    "sentence": f"its accuracy of {accuracy} meets >= 0.9",
                }
            ],
            "summary": f"mnist version {version} serves: its accuracy meets >= 0.9.",
        },
    )
    store.write_bytes(join(report, "confusion.png"), b"\x89PNG made up")
    write_result(run_dir, "evaluate", settings={"confidence": 0.9}, **result)
