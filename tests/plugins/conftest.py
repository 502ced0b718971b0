"""A worker's machine in small: a store, a spark-submit that is a program, a task's context."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import settings

# A busy machine is no fault of what is tested.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="trainyard-test-airflow-"))

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """The machine; what its submissions leave behind is ended after the test."""
    machine = Worker(tmp_path, monkeypatch)
    yield machine
    for process in machine.processes():
        process.kill()


class Worker:
    """An Airflow worker with its store and programs below one directory.

    `behave(NAME)` chooses what the job's program does next; see programs/prepare.py.
    """

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.store = home / "store"
        self.pids = home / "pids"
        self.pids.mkdir()
        self._monkeypatch = monkeypatch
        binaries = home / "bin"
        binaries.mkdir()
        submit = binaries / "spark-submit"
        submit.write_text(f"#!{sys.executable}\n" + (HERE / "programs" / "submit.py").read_text())
        submit.chmod(0o755)
        # Not a link: a link to a virtual environment's Python has none of its packages.
        python = binaries / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        self.set(
            PATH=f"{binaries}{os.pathsep}{os.environ['PATH']}",
            AIRFLOW__TRAINYARD__STORE=str(self.store),
            AIRFLOW__TRAINYARD__JOBS_FOLDER=str(HERE / "programs"),
            AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[2]"}',
            PYTHONPATH=f"{ROOT}/jobs:{ROOT}/plugins",
            PIDS=str(self.pids),
        )
        for name in (
            "MLFLOW_TRACKING_URI",
            "PYSPARK_PYTHON",
            "PYSPARK_DRIVER_PYTHON",
            "SPARK_HOME",
        ):
            monkeypatch.delenv(name, raising=False)
        self.behave("succeed")

    def set(self, **variables: str) -> None:
        """Set environment variables for the test."""
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def behave(self, behaviour: str) -> None:
        """Choose what the job's program does."""
        self.set(BEHAVIOUR=behaviour)

    def run_dir(self, generation: int = 2) -> str:
        """The run directory of the task that `context` makes."""
        return f"{self.store}/a_dag/a_run/prepare/g{generation}"

    def processes(self) -> list[psutil.Process]:
        """Processes of the submissions that still run."""
        alive = []
        for path in self.pids.iterdir():
            try:
                process = psutil.Process(int(path.name))
                if process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
            except psutil.NoSuchProcess:
                continue
        return alive


@pytest.fixture
def context() -> Callable[..., Any]:
    """Make the context of a task instance."""

    def make(task_id: str = "prepare", *, max_tries: int = 2, map_index: int = -1) -> Any:
        ti = SimpleNamespace(
            dag_id="a_dag",
            run_id="a_run",
            task_id=task_id,
            map_index=map_index,
            max_tries=max_tries,
        )
        return {"ti": ti, "outlet_events": _OutletEvents()}

    return make


class _OutletEvents(dict[Any, Any]):
    """Asset events that are made when they are asked for, as Airflow's are."""

    def __missing__(self, asset: Any) -> Any:
        self[asset] = SimpleNamespace(extra={})
        return self[asset]
