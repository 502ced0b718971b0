"""A run of a DAG as a test sees it, through Airflow's REST API alone."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tests.e2e.own_airflow import ROOT

from services.api import Api

SECONDS = 400
"""Limit for a hang; a whole run takes a minute or two on two cores."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a DAG."""

    api: Api
    dag_id: str
    run_id: str

    @classmethod
    def trigger(cls, api: Api, dag_id: str, **conf: Any) -> Self:
        """Start a run now."""
        body = {"logical_date": None, "conf": conf}
        run_id = api.post("dags", dag_id, "dagRuns", body=body)["dag_run_id"]
        return cls(api=api, dag_id=dag_id, run_id=run_id)

    @property
    def path(self) -> tuple[str, ...]:
        """The run in the API."""
        return ("dags", self.dag_id, "dagRuns", self.run_id)

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Every task as the API describes it."""
        found = self.api.get(*self.path, "taskInstances")["task_instances"]
        return {task["task_id"]: task for task in found}

    def xcom(self, task_id: str) -> dict[str, Any]:
        """What a task returned."""
        entry = (*self.path, "taskInstances", task_id, "xcomEntries", "return_value")
        value = self.api.get(*entry, deserialize="true")["value"]
        return dict(json.loads(value) if isinstance(value, str) else value)

    def log(self, task_id: str) -> str:
        """The log of a task's first attempt."""
        answer = self.api.get(*self.path, "taskInstances", task_id, "logs", "1")
        return json.dumps(answer["content"])

    def wait(self, seconds: float = SECONDS) -> str:
        """The state in which the run ends; where it failed, pytest shows which task did."""
        wait_until(lambda: self.api.get(*self.path)["state"] in ("success", "failed"), seconds)
        state = str(self.api.get(*self.path)["state"])
        if state == "failed":
            print({name: task["state"] for name, task in self.tasks().items()})
        return state


def wait_until(condition: Callable[[], object], seconds: float) -> None:
    """Wait for a condition; fail where it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.3)


def dag_ids(api: Api) -> list[str]:
    """The DAGs that Airflow knows by now."""
    return [dag["dag_id"] for dag in api.get("dags")["dags"]]


def in_jobs_environment(program: str, argument: str) -> str:
    """What a program prints in the jobs' environment, which has pyarrow."""
    return subprocess.run(
        [ROOT / ".venv/jobs/bin/python", "-c", program, argument],
        cwd=ROOT / "jobs",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
