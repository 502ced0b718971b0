"""The operator against real masters: tokens, wrong ports, restarts, and what others can see."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.e2e.own_airflow import ROOT
from tests.e2e.runs import wait_until

from services.standalone import Standalone
from trainyard.specs import Prepare
from trainyard_airflow.operators.spark_job import SparkJobOperator

pytestmark = pytest.mark.timeout(300)

KEY = secrets.token_bytes(32)
Execute = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master that recovers, and whose REST server wants a token."""
    key = base64.urlsafe_b64encode(KEY).decode()
    home = tmp_path_factory.mktemp("guarded")
    with Standalone(home, rest_key=key, recover=True, workers=1, cores=3) as cluster:
        yield cluster


@pytest.fixture
def token() -> str:
    return jwt.encode({"sub": "airflow", "exp": time.time() + 600}, KEY, algorithm="HS256")


class Memory(dict[str, Any]):
    def set(self, key: str, value: Any) -> None:
        self[key] = value


class Task:
    """A task whose job is programs/prepare.py; it waits in this process."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = tmp_path / "store"
        monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", str(self.store))
        programs = Path(__file__).parent / "programs"
        monkeypatch.setenv("AIRFLOW__TRAINYARD__JOBS_FOLDER", str(programs))
        self._monkeypatch = monkeypatch
        self.memory = Memory()

    def connect(self, connection: str) -> None:
        self._monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)

    def operator(self, source: str = "look", **arguments: Any) -> SparkJobOperator:
        variables = {"PYTHONPATH": f"{ROOT}/jobs", "API_TOKEN": "secret-in-env"}
        return SparkJobOperator(
            task_id="prepare",
            job=Prepare(source=source, features=("f",), label="l"),
            deferrable=False,
            env_vars=variables,
            **arguments,
        )

    def context(self) -> Any:
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="prepare", map_index=-1, max_tries=0)
        return {"ti": ti, "task_state_store": self.memory, "outlet_events": {}}

    def stays(self) -> bool:
        return bool(list(self.store.glob("d/r/prepare/g0/staying")))


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    return Task(tmp_path, monkeypatch)


def test_a_token_opens_the_server_and_secrets_show_nowhere(
    task: Task, guarded: Standalone, token: str
) -> None:
    task.connect(guarded.connection(password=token))
    result = task.operator(conf={"spark.mine.secret": "secret-in-conf"}).execute(task.context())
    seen = json.loads(result["outputs"]["dataset"])
    assert seen["token"] == "secret-in-env", "the executors have it"
    assert result["fingerprints"]["conf"] == "secret-in-conf", "the session has it"
    assert "CoarseGrainedExecutorBackend" in seen["commands"]
    shown = seen["commands"] + guarded.log("worker1") + guarded.log("master")
    shown += json.dumps(guarded.state())
    for secret in ("secret-in-env", "secret-in-conf", token):
        assert secret not in shown
    assert base64.urlsafe_b64encode(KEY).decode() not in shown


@pytest.mark.parametrize("sent", ["", "no-token-at-all", "signed by another"])
def test_a_token_that_is_missing_or_wrong_is_refused(
    task: Task, guarded: Standalone, sent: str
) -> None:
    other = jwt.encode({"sub": "airflow"}, secrets.token_bytes(32), algorithm="HS256")
    task.connect(guarded.connection(password=other if "signed" in sent else sent))
    with pytest.raises(AirflowFailException, match="connection's password") as raised:
        task.operator().execute(task.context())
    assert other not in str(raised.value)
    assert guarded.state()["activedrivers"] == []


def test_the_web_port_is_no_rest_port(task: Task, guarded: Standalone) -> None:
    ports = {"rest-port": guarded.web_port, "web-port": guarded.web_port}
    task.connect(guarded.connection(extra={"deploy-mode": "cluster", **ports}))
    with pytest.raises(AirflowFailException, match="not the REST server of a Spark master"):
        task.operator().execute(task.context())


def test_a_master_without_a_rest_server_is_named(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard_airflow.rest.PATIENCE_SECONDS", 2.0)
    with Standalone(tmp_path / "closed", workers=1, cores=3, rest=False) as closed:
        task.connect(closed.connection())
        with pytest.raises(AirflowException, match=r"spark\.master\.rest\.enabled=true"):
            task.operator().execute(task.context())


def test_a_master_that_is_killed_and_starts_again_ends_nothing(
    task: Task, guarded: Standalone, token: str
) -> None:
    task.connect(guarded.connection(password=token))
    operator = task.operator("stay")
    ended: list[BaseException] = []

    def execute() -> None:
        try:
            operator.execute(task.context())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    try:
        wait_until(task.stays, 60)
        guarded.kill("master")
        time.sleep(3)
        assert thread.is_alive(), "it asks on"
        guarded.start_master()
        guarded.wait_for_workers(1)
        time.sleep(3)
        assert thread.is_alive()
        (driver,) = guarded.state()["activedrivers"]
        assert driver["id"] == task.memory["trainyard_driver"]["submission"]
    finally:
        began = time.monotonic()
        operator.on_kill()
        wait_until(lambda: not guarded.jobs(), 10)
        took = time.monotonic() - began
        thread.join(30)
    assert took < 10
    assert isinstance(ended[0], AirflowException)
    assert sorted(p.name for p in task.store.glob("d/r/prepare/g0/claims/*.json")) == ["0001.json"]


def test_of_a_list_of_masters_the_one_that_lives_is_asked(
    task: Task, guarded: Standalone, token: str
) -> None:
    # Two that elect one need ZooKeeper; what both sides see of it is that the first is gone.
    masters = f"spark://127.0.0.2:{guarded.port},127.0.0.1:{guarded.port}"
    task.connect(guarded.connection(host=masters, password=token))
    result = task.operator().execute(task.context())
    assert result["claim"] == 1
    seen = json.loads(result["outputs"]["dataset"])
    assert f"spark.master={masters}" in seen["commands"], "the driver knows both"
    wait_until(lambda: not guarded.jobs(), 10)
    assert guarded.state()["activedrivers"] == []
