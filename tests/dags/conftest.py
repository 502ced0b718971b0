"""Airflow's DAGs as its DAG processor collects them, and tasks rendered as its task runner does."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="trainyard-test-airflow-"))

ROOT = Path(__file__).resolve().parents[2]
STORE = "/store"

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag


@pytest.fixture(scope="session")
def dagbag() -> DagBag:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(ROOT / "dags", bundle_path=ROOT / "dags", bundle_name="dags")


class TaskInstance:
    """What templates read of a task instance: its names, and what earlier tasks returned."""

    run_id = "manual__2026-11-30T02:00:00+00:00"
    map_index = -1
    max_tries = 2

    def __init__(self, dag_id: str, task_id: str) -> None:
        self.dag_id = dag_id
        self.task_id = task_id

    def xcom_pull(self, task_ids: str, **_: Any) -> Any:
        """The result of an earlier task, in the form that its job gives it."""
        return RESULTS[task_ids]


MODEL = {"name": "mnist", "version": "3", "uri": "models:/mnist/3"}
METRICS = {"accuracy": {"value": 0.95, "low": 0.93, "high": 0.96}}
RESULTS: dict[str, dict[str, Any]] = {
    "prepare": {"outputs": {"dataset": f"{STORE}/prepared/data"}},
    "tune": {
        "best": {
            "engine": "xgboost",
            "settings": {"rounds": 50, "max_depth": 4, "booster_params": {"subsample": 0.8}},
        }
    },
    "train": {
        "outputs": {"model": f"{STORE}/trained/model", "model_uri": "models:/mnist/3"},
        "model": {"name": "mnist", "version": "3", "mlflow_run_id": "0123456789abcdef"},
    },
    "evaluate": {"model": MODEL, "metrics": METRICS, "champion": None, "rows": {"test": 1000}},
    "promote": {"promoted": True, "champion": MODEL, "challenger": MODEL},
}
