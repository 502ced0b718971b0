"""YARN and Kubernetes in cluster mode: what spark-submit is called with, and how a job ends."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk.exceptions import AirflowException
from tests.plugins.conftest import ROOT, Worker
from tests.plugins.test_spark_job import prepare

from trainyard_airflow import connection

MakeContext = Callable[..., Any]


def connect(worker: Worker, host: str, **extra: str) -> None:
    values = {"conn_type": "spark", "host": host, "extra": {"deploy-mode": "cluster", **extra}}
    worker.set(
        AIRFLOW_CONN_SPARK_DEFAULT=json.dumps(values),
        AIRFLOW__TRAINYARD__CLUSTER_JOBS_FOLDER=str(ROOT / "tests/plugins/programs"),
        MLFLOW_TRACKING_URI="http://mlflow:5000",
    )


def argv(worker: Worker) -> list[str]:
    return (worker.home / "submit.argv").read_text().splitlines()[1:]


def confs(words: list[str]) -> dict[str, str]:
    """The configuration of a command line, by name."""
    pairs = [b for a, b in pairwise(words) if a == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_yarn(worker: Worker, context: MakeContext) -> None:
    connect(worker, "yarn", queue="nightly")
    operator = prepare(
        num_executors=2,
        executor_cores=1,
        py_files="/shared/my_network.py",
        archives="/shared/environment.tar.gz#environment",
        env_vars={"API_TOKEN": "in-the-driver", "PYSPARK_PYTHON": "./environment/bin/python"},
    )
    assert operator.execute(context())["claim"] == 1
    words = argv(worker)
    program = words.index(str(ROOT / "tests/plugins/programs/prepare.py"))
    assert words[:2] == ["--master", "yarn"]
    options = dict(pairwise(words[:program]))
    assert options["--deploy-mode"] == "cluster"
    assert options["--queue"] == "nightly"
    assert options["--num-executors"] == "2"
    assert options["--py-files"] == "/shared/my_network.py"
    assert options["--archives"] == "/shared/environment.tar.gz#environment"
    conf = confs(words[:program])
    prefix = "spark.yarn.appMasterEnv."
    assert conf[prefix + "MLFLOW_TRACKING_URI"] == "http://mlflow:5000"
    assert conf[prefix + "PYTHONPATH"].startswith(str(ROOT / "tests/plugins/programs"))
    assert conf[prefix + "PYSPARK_PYTHON"] == "./environment/bin/python"
    assert "in-the-driver" not in "".join(words)
    assert f"{prefix}API_TOKEN in-the-driver" in (worker.home / "properties").read_text()
    assert not [name for name in conf if "AIRFLOW" in name]


def test_kubernetes(worker: Worker, context: MakeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_is_installed", lambda _: True)
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    connect(worker, "k8s://https://cluster:6443", namespace="training")
    image = {"spark.kubernetes.container.image": "registry/trainyard:1"}
    assert prepare(conf=image, num_executors=2).execute(context())["claim"] == 1
    words = argv(worker)
    conf = confs(words)
    assert words[:2] == ["--master", "k8s://https://cluster:6443"]
    assert words[words.index("--deploy-mode") + 1] == "cluster"
    assert conf["spark.kubernetes.namespace"] == "training"
    assert conf["spark.kubernetes.container.image"] == "registry/trainyard:1"
    assert conf["spark.kubernetes.driverEnv.MLFLOW_TRACKING_URI"] == "http://mlflow:5000"
    assert not [name for name in conf if "yarn" in name]


def test_a_kill_ends_the_application_on_yarn(worker: Worker, context: MakeContext) -> None:
    connect(worker, "yarn")
    told = worker.home / "yarn.argv"
    program = worker.home / "bin/yarn"
    program.write_text(f'#!/bin/sh\necho "$@" > {told}\n')
    program.chmod(0o755)
    worker.behave("stubborn")
    operator = prepare()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            operator.execute(context())
        except BaseException as error:
            errors.append(error)

    task = threading.Thread(target=run)
    task.start()
    deadline = time.monotonic() + 30
    while not (worker.home / "staying").exists():
        assert time.monotonic() < deadline, errors
        time.sleep(0.05)
    operator.on_kill()
    task.join(timeout=30)
    assert told.read_text().split() == ["application", "-kill", "application_1796000000000_0007"]
    assert [type(error) for error in errors] == [AirflowException]
    assert worker.processes() == []
