"""A task that ends takes every process of its submission with it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException
from tests.plugins.conftest import HERE, Worker

from trainyard.specs import Prepare
from trainyard_airflow import processes
from trainyard_airflow.operators.spark_job import SparkJobOperator

AIRFLOWS_PATIENCE = 5.0
"""Seconds after a SIGTERM until Airflow's supervisor kills the task's process."""


class Task:
    """A task in a process of its own, whose driver ignores SIGTERM, as do its children."""

    def __init__(self, worker: Worker, *, timeout: int = 0) -> None:
        worker.behave("stubborn")
        self._worker = worker
        self._error = worker.home / "error"
        command = [
            sys.executable,
            str(HERE / "programs" / "task.py"),
            str(timeout),
            str(self._error),
        ]
        self.process = subprocess.Popen(command)

    def wait_until_it_stays(self) -> None:
        deadline = time.monotonic() + 30
        while not (self._worker.home / "staying").exists():
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.05)
        # spark-submit, the driver, and a child in another group, in another session, orphaned
        assert len(self._worker.processes()) == 5

    def error(self) -> str:
        return self._error.read_text()


def test_a_kill_leaves_no_process(worker: Worker) -> None:
    task = Task(worker)
    task.wait_until_it_stays()
    began = time.monotonic()
    task.process.send_signal(signal.SIGTERM)
    while worker.processes():
        assert time.monotonic() - began < AIRFLOWS_PATIENCE
        time.sleep(0.02)
    task.process.wait(timeout=30)
    assert task.error() == "AirflowException: The task was killed, and prepare with it."


def test_a_timeout_leaves_no_process(worker: Worker) -> None:
    task = Task(worker, timeout=4)
    task.wait_until_it_stays()
    task.process.wait(timeout=30)
    assert worker.processes() == []
    assert task.error().startswith("AirflowTaskTimeout")


def test_a_retry_ends_what_a_killed_worker_left_behind(
    worker: Worker, context: Callable[..., Any]
) -> None:
    task = Task(worker)
    task.wait_until_it_stays()
    task.process.kill()
    task.process.wait(timeout=30)
    left = worker.processes()
    assert len(left) == 5, "nobody ends them with the worker"
    worker.behave("succeed")
    job = Prepare(source="s", features=("f",), label="l")
    result = SparkJobOperator(task_id="prepare", job=job).execute(context())
    assert not {p.pid for p in left} & {p.pid for p in worker.processes()}
    assert result["claim"] == 2


def test_a_retry_does_not_end_a_driver_that_airflow_did_not_start(
    worker: Worker, context: Callable[..., Any]
) -> None:
    worker.behave("stubborn")
    job = Prepare(source="s", features=("f",), label="l", run_dir=worker.run_dir())
    program = str(HERE / "programs" / "prepare.py")
    by_hand = subprocess.Popen([sys.executable, program, *job.argv()])
    try:
        deadline = time.monotonic() + 30
        while not (worker.home / "staying").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        operator = SparkJobOperator(task_id="prepare", job=job)
        with pytest.raises(AirflowException, match=f"did not start here: process {by_hand.pid} on"):
            operator.execute(context())
        assert by_hand.poll() is None
    finally:
        by_hand.kill()
        by_hand.wait()


def test_a_kill_before_the_submission_submits_nothing(
    worker: Worker, context: Callable[..., Any]
) -> None:
    job = Prepare(source="s", features=("f",), label="l")
    operator = SparkJobOperator(task_id="prepare", job=job)
    operator.on_kill()
    with pytest.raises(AirflowException, match="killed before it submitted"):
        operator.execute(context())
    assert not (worker.home / "submit.argv").exists()


def test_only_the_submission_is_ended(tmp_path: Path) -> None:
    mine = subprocess.Popen(["sleep", "60"], env={processes.MARKER: str(tmp_path / "a")})
    other = subprocess.Popen(["sleep", "60"], env={processes.MARKER: str(tmp_path / "b")})
    try:
        assert processes.end_submission(str(tmp_path / "a")) == 1
        assert mine.wait(timeout=5) == -signal.SIGTERM
        assert psutil.Process(other.pid).is_running()
        assert processes.end_submission(str(tmp_path / "a")) == 0
    finally:
        other.kill()
        other.wait()
