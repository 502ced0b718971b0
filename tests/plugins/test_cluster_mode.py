"""The operator in cluster mode: a REST server in small, and drivers that are real processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow._shared.module_loading import import_string
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from tests.plugins.conftest import Worker
from tests.plugins.fake_master import idle, recorded
from tests.plugins.fake_rest import FakeMaster, fake_master

from trainyard import store, tickets
from trainyard.specs import Prepare
from trainyard_airflow import drivers, masking, rest, room, waiting
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.triggers import spark_room

MakeContext = Callable[..., Any]


class Memory(dict[str, Any]):
    """Airflow's task state store: plain JSON that survives retries and clears."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))


class Cluster:
    """Launches what the master is given, as a worker does, and tells the master of its end."""

    def __init__(self, master: FakeMaster, worker: Worker) -> None:
        self.master = master
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._worker = worker
        master.on_create = self.launch
        master.on_kill = lambda name: self.processes[name].kill()

    def launch(self, name: str, request: dict[str, Any]) -> None:
        words = request["appArgs"]
        program = next(i for i, word in enumerate(words) if word.endswith(".py"))
        environment = {
            **os.environ,
            **request["environmentVariables"],
            "SPARK_DRIVER_LOG_URL_STDERR": f"http://w:8081/logPage/?driverId={name}&logType=stderr",
        }
        process = subprocess.Popen([sys.executable, *words[program:]], env=environment)
        self.processes[name] = process
        threading.Thread(target=self._watch, args=(name, process)).start()

    def _watch(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if self.master.drivers.get(name) == "RUNNING":
            self.master.drivers[name] = "FAILED" if code else "FINISHED"

    def claims(self, generation: int = 2) -> list[str]:
        folder = Path(self._worker.run_dir(generation), "claims")
        return sorted(path.name for path in folder.glob("*.json"))

    def wait_until_it_stays(self) -> None:
        deadline = time.monotonic() + 30
        while not (self._worker.home / "staying").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def cluster(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(waiting, "YOUNG_SECONDS", 0.05)
    monkeypatch.setattr(rest, "PATIENCE_SECONDS", 2.0)
    with fake_master() as master:
        worker.set(AIRFLOW_CONN_SPARK_DEFAULT=master.connection())
        made = Cluster(master, worker)
        yield made
        for process in made.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def told(context: MakeContext) -> MakeContext:
    """Contexts that share one task state store."""
    memory = Memory()

    def make(**arguments: Any) -> Any:
        return {**context(**arguments), "task_state_store": memory}

    return make


def prepare(source: str = "sample:mnist", **arguments: Any) -> SparkJobOperator:
    job = Prepare(source=source, features=("pixels",), label="label")
    return SparkJobOperator(task_id="prepare", job=job, **arguments)


def deferred(operator: SparkJobOperator, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as raised:
        operator.execute(context)
    return raised.value


def resumed(context: Any, deferral: TaskDeferred, event: dict[str, Any]) -> Any:
    assert deferral.kwargs is not None
    return getattr(prepare(), deferral.method_name)(context, event=event, **deferral.kwargs)


def ended(cluster: Cluster, name: str, *, timed_out: bool = False) -> dict[str, Any]:
    """The event of a driver that ends by itself."""
    cluster.processes[name].wait()
    while (state := cluster.master.drivers[name]) == "RUNNING":
        time.sleep(0.01)
    return {"state": state, "worker": "w:1", "timed_out": timed_out}


def test_a_task_that_does_not_defer_waits_and_takes_the_result(
    cluster: Cluster, told: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    result = prepare(deferrable=False).execute(told())
    assert result["claim"] == 1
    assert result["rows"]["train"] == 3
    log = capsys.readouterr().out
    assert "deploy mode cluster" in log
    assert "4 parts were read" in log
    assert list(drivers.recorded()) == []


def test_the_task_defers_with_all_that_it_needs_and_resumes(
    cluster: Cluster, told: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.time()
    context = told()
    deferral = deferred(prepare(execution_timeout=timedelta(seconds=60)), context)
    (name,) = cluster.master.drivers
    _, arguments = deferral.trigger.serialize()
    assert arguments["driver"]["submission"] == name
    assert arguments["driver"]["generation"] == 2
    assert arguments["deadline"] == pytest.approx(began + 60, abs=5)
    assert deferral.timeout is None, "Airflow's own would fail the task and leave the driver"
    assert [driver.submission for driver in drivers.recorded()] == [name]
    assert resumed(context, deferral, ended(cluster, name))["claim"] == 1
    assert "prepare  100% part 4/4" in capsys.readouterr().out, "the story, when it resumes"
    assert list(drivers.recorded()) == []


def test_the_request_shows_no_secret_and_the_session_gets_them(
    cluster: Cluster, told: MakeContext, worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.set(MLFLOW_TRACKING_URI="http://me:in-the-uri@mlflow:5000")
    operator = prepare(
        env_vars={"API_TOKEN": "in-the-env"},
        conf={"spark.hadoop.fs.s3a.secret.key": "in-the-conf", "spark.cores.max": "2"},
        driver_memory="2g",
        deferrable=False,
    )
    operator.execute(told())
    (request,) = cluster.master.requests
    shown = json.dumps({k: v for k, v in request.items() if k != "environmentVariables"})
    for secret in ("in-the-uri", "in-the-env", "in-the-conf"):
        assert secret not in shown
        assert secret not in capsys.readouterr().out
    assert "spark.cores.max=2" in request["appArgs"]
    assert f"spark.redaction.regex={masking.REDACTION}" in request["appArgs"]
    assert "--deploy-mode" not in request["appArgs"]
    assert request["sparkProperties"]["spark.driver.memory"] == "2048m"
    environment = request["environmentVariables"]
    assert json.loads(environment["TRAINYARD_SPARK_CONF"]) == {
        "spark.hadoop.fs.s3a.secret.key": "in-the-conf"
    }
    assert json.loads(environment["TRAINYARD_EXECUTOR_VARIABLES"]) == ["API_TOKEN"]
    assert not [name for name in environment if name.startswith(("AIRFLOW", "PATH", "PYSPARK"))]


def test_the_job_parses_what_is_submitted(cluster: Cluster, told: MakeContext) -> None:
    prepare(source="s3://a b/c,'d'", deferrable=False).execute(told())
    words = cluster.master.requests[0]["appArgs"]
    program = next(i for i, word in enumerate(words) if word.endswith("prepare.py"))
    assert Prepare.parse(words[program + 1 :]).source == "s3://a b/c,'d'"


def test_a_retry_re_attaches_to_the_driver_of_its_generation(
    cluster: Cluster, told: MakeContext, worker: Worker
) -> None:
    worker.behave("stubborn")
    first = deferred(prepare(), told())
    cluster.wait_until_it_stays()
    again = deferred(prepare(), told())
    assert again.trigger.serialize()[1]["driver"] == first.trigger.serialize()[1]["driver"]
    assert len(cluster.master.drivers) == 1
    assert cluster.master.killed == []


def test_what_another_version_remembered_keeps_nobody_from_submitting(
    cluster: Cluster, context: MakeContext, worker: Worker
) -> None:
    memory = Memory({"trainyard_driver": {"submission": "x", "of_another_version": 1}})
    store.write_bytes(f"{worker.store}/drivers/old.json", b'{"of_another_version": 1}')
    deferral = deferred(prepare(), {**context(), "task_state_store": memory})
    assert deferral.kwargs is not None
    assert list(cluster.master.drivers) == [deferral.kwargs["driver"]["submission"]]


def test_a_clear_ends_the_old_driver_first_and_works_in_another_directory(
    cluster: Cluster, told: MakeContext, worker: Worker
) -> None:
    worker.behave("stubborn")
    deferred(prepare(), told())
    cluster.wait_until_it_stays()
    worker.behave("succeed")
    result = prepare(deferrable=False).execute(told(max_tries=5))
    old, new = cluster.master.drivers
    assert cluster.master.killed == [old]
    assert cluster.processes[old].poll() is not None
    assert cluster.master.drivers[new] == "FINISHED"
    assert result["run_dir"] == worker.run_dir(5)
    assert cluster.claims(2) == cluster.claims(5) == ["0001.json"]


def test_a_driver_whose_id_was_lost_is_adopted_and_no_second_one_made(
    cluster: Cluster, told: MakeContext, context: MakeContext, worker: Worker
) -> None:
    worker.behave("stubborn")
    deferred(prepare(), told())
    cluster.wait_until_it_stays()
    (name,) = cluster.master.drivers
    forgetful = {**context(), "task_state_store": Memory()}
    again = deferred(prepare(), forgetful)
    assert again.trigger.serialize()[1]["driver"]["submission"] == name
    assert len(cluster.master.drivers) == 1
    assert cluster.claims() == ["0001.json"]


def test_a_lost_driver_that_starts_late_does_no_work(
    cluster: Cluster, told: MakeContext, worker: Worker
) -> None:
    """Its answer was lost, and it starts after the one that was submitted in its place."""
    launch = cluster.launch
    late: list[tuple[str, dict[str, Any]]] = []
    cluster.master.on_create = lambda name, body: late.append((name, body))
    cluster.master.lose_answers = 1
    operator = prepare(deferrable=False)

    def second(name: str, body: dict[str, Any]) -> None:
        if late:
            launch(name, body)
        else:
            late.append((name, body))

    cluster.master.on_create = second
    result = operator.execute(told())
    assert result["claim"] == 1
    assert len(cluster.master.drivers) == 2
    Path(worker.run_dir(), "result.json").unlink()
    launch(*late[0])
    assert cluster.processes[late[0][0]].wait() == 1
    assert cluster.claims() == ["0001.json"], "it did not even claim"
    refusal = tickets.read_refusal(worker.run_dir(), 1)
    assert refusal is not None
    assert "ticket 2 was issued since" in refusal["cause"]


def test_another_driver_that_was_faster_is_waited_for(
    cluster: Cluster, told: MakeContext, worker: Worker
) -> None:
    """Both are of the same ticket generation: the second one finds the directory claimed."""
    worker.behave("stubborn")
    context = told()
    deferral = deferred(prepare(), context)
    cluster.wait_until_it_stays()
    (first,) = cluster.master.drivers
    second = "driver-20261130000000-0009"
    cluster.master.drivers[second] = "FAILED"
    assert deferral.kwargs is not None
    deferral.kwargs["driver"]["submission"] = second
    event = {"state": "FAILED", "worker": "w:1", "timed_out": False}
    with pytest.raises(TaskDeferred) as again:
        resumed(context, deferral, event)
    assert again.value.trigger.serialize()[1]["driver"]["submission"] == first
    assert again.value.kwargs is not None
    assert again.value.kwargs["deadline"] == deferral.kwargs["deadline"]


def test_a_retry_of_a_dead_driver_submits_anew_in_the_same_directory(
    cluster: Cluster, told: MakeContext, worker: Worker
) -> None:
    worker.behave("waver")
    with pytest.raises(AirflowException, match="cause: the store is full") as raised:
        prepare(deferrable=False).execute(told())
    assert not isinstance(raised.value, AirflowFailException), "a retry continues"
    worker.behave("succeed")
    result = prepare(deferrable=False).execute(told())
    assert (result["claim"], result["run_dir"]) == (2, worker.run_dir())


def test_a_result_that_is_there_needs_no_driver(
    cluster: Cluster, told: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed_before:
        killed_before.setattr(drivers, "forget", lambda driver: None)
        first = prepare(deferrable=False).execute(told())
    assert len(list(drivers.recorded())) == 1
    assert prepare(deferrable=False).execute(told()) == first
    assert len(cluster.master.drivers) == 1
    assert list(drivers.recorded()) == []


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("swallow", "ended well and wrote no result into"),
        ("crash", "ended as FAILED before it could say why.*driver-.*on worker w:1"),
        ("die", "ended as FAILED before it could say why"),
    ],
)
def test_a_job_without_a_result_has_failed(
    cluster: Cluster, told: MakeContext, worker: Worker, behaviour: str, message: str
) -> None:
    worker.behave(behaviour)
    context = told()
    deferral = deferred(prepare(), context)
    (name,) = cluster.master.drivers
    with pytest.raises(AirflowException, match=message):
        resumed(context, deferral, ended(cluster, name))


def test_the_end_of_a_driver_on_another_machine_is_not_waited_for_again(
    cluster: Cluster, told: MakeContext, worker: Worker
) -> None:
    worker.behave("die")
    context = told()
    deferral = deferred(prepare(), context)
    (name,) = cluster.master.drivers
    event = ended(cluster, name)
    claim = Path(worker.run_dir(), "claims", "0001.json")
    claim.write_text(json.dumps({**json.loads(claim.read_text()), "host": "elsewhere"}))
    began = time.monotonic()
    with pytest.raises(AirflowException, match="ended as FAILED"):
        resumed(context, deferral, event)
    assert time.monotonic() - began < 5, "its lease is not waited for"


def test_a_refusal_is_told_in_the_jobs_own_words_and_not_retried(
    cluster: Cluster, told: MakeContext, worker: Worker
) -> None:
    """The job finds the directory used by another job, which only it can know."""
    context = told()
    worker.behave("stubborn")
    deferral = deferred(prepare(), context)
    cluster.wait_until_it_stays()
    (name,) = cluster.master.drivers
    cluster.processes[name].kill()
    tickets_of = Path(worker.run_dir(), "tickets")
    (tickets_of / "0001.refused").write_text(
        '{"cause": "it is taken.", "fix": "Wait.", "permanent": true}'
    )
    with pytest.raises(AirflowFailException, match=r"cause: it is taken\. fix: Wait\."):
        resumed(context, deferral, ended(cluster, name))


def test_a_timeout_says_so_and_is_retried(
    cluster: Cluster, told: MakeContext, worker: Worker
) -> None:
    worker.behave("stubborn")
    context = told()
    deferral = deferred(prepare(), context)
    cluster.wait_until_it_stays()
    (name,) = cluster.master.drivers
    cluster.processes[name].kill()
    with pytest.raises(AirflowTaskTimeout, match="longer than the task's execution_timeout"):
        resumed(context, deferral, ended(cluster, name, timed_out=True))


def test_a_kill_of_a_task_that_waits_in_a_worker_ends_the_driver(
    cluster: Cluster, told: MakeContext, worker: Worker
) -> None:
    worker.behave("stubborn")
    operator = prepare(deferrable=False)
    raised: list[BaseException] = []

    def execute() -> None:
        try:
            operator.execute(told())
        except BaseException as error:
            raised.append(error)

    task = threading.Thread(target=execute)
    task.start()
    cluster.wait_until_it_stays()
    began = time.monotonic()
    operator.on_kill()
    assert time.monotonic() - began < 5, "Airflow ends the process after 5 s"
    task.join(10)
    (name,) = cluster.master.drivers
    assert cluster.processes[name].wait(5) != 0
    assert isinstance(raised[0], AirflowException)


def test_a_kill_before_the_submission_submits_nothing(cluster: Cluster, told: MakeContext) -> None:
    operator = prepare()
    operator.on_kill()
    with pytest.raises(AirflowException, match="killed before it submitted"):
        operator.execute(told())
    assert cluster.master.drivers == {}


def test_no_master_is_named_with_the_settings_and_retried(
    cluster: Cluster, told: MakeContext
) -> None:
    cluster.master.standby = True
    with pytest.raises(AirflowException, match=r"'spark_default'.*not alive.*rest-port") as raised:
        prepare().execute(told())
    assert not isinstance(raised.value, AirflowFailException), "it may start again"


def test_a_master_that_starts_again_is_waited_for(cluster: Cluster, told: MakeContext) -> None:
    cluster.master.standby = True
    threading.Timer(0.5, lambda: setattr(cluster.master, "standby", False)).start()
    assert prepare(deferrable=False).execute(told())["claim"] == 1


def test_a_wrong_token_fails_at_once(cluster: Cluster, told: MakeContext) -> None:
    cluster.master.token = "right"
    with pytest.raises(AirflowFailException, match="connection's password"):
        prepare().execute(told())
    assert list(drivers.recorded()) == [], "there is no driver to end"


class TestRoom:
    """The cluster of `masters/running.json`: one worker of 3 cores, of which some are taken."""

    def test_a_job_that_never_fits_is_refused(self, cluster: Cluster, told: MakeContext) -> None:
        cluster.master.web = recorded("running")
        with pytest.raises(AirflowException, match="prepare needs 9 cores") as raised:
            prepare(conf={"spark.driver.cores": "9"}).execute(told())
        assert not isinstance(raised.value, AirflowFailException), "more workers may come"
        assert cluster.master.drivers == {}

    @pytest.mark.parametrize(
        "starting", [idle((9, 9999), status="RECOVERING"), idle(status="STANDBY"), idle()]
    )
    def test_a_master_that_has_just_started_is_waited_for(
        self,
        cluster: Cluster,
        told: MakeContext,
        monkeypatch: pytest.MonkeyPatch,
        starting: dict[str, Any],
    ) -> None:
        monkeypatch.setattr(room, "_GRACE_SECONDS", 0.0)
        cluster.master.web = starting
        deferral = deferred(prepare(), told())
        assert deferral.method_name == "execute_with_room"
        assert cluster.master.drivers == {}

    def test_an_error_while_it_waits_is_told_by_the_task(
        self, cluster: Cluster, told: MakeContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(room, "_GRACE_SECONDS", 0.0)
        cluster.master.web = idle()
        context = told()
        deferral = deferred(prepare(conf={"spark.driver.cores": "9"}), context)
        cluster.master.web = idle((3, 3072))

        async def fires() -> None:
            assert [event.payload async for event in deferral.trigger.run()] == [{}]

        asyncio.run(asyncio.wait_for(fires(), 20))
        operator = prepare(conf={"spark.driver.cores": "9"})
        with pytest.raises(AirflowException, match="prepare needs 9 cores"):
            operator.execute_with_room(context, {}, **(deferral.kwargs or {}))

    def test_a_job_that_does_not_fit_now_waits_in_the_triggerer(
        self, cluster: Cluster, told: MakeContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(room, "_GRACE_SECONDS", 0.0)
        monkeypatch.setattr(spark_room, "_POLL_SECONDS", 0.05)
        cluster.master.web = recorded("starved")
        context = told()
        deferral = deferred(prepare(), context)
        assert cluster.master.drivers == {}
        path, arguments = deferral.trigger.serialize()
        trigger = import_string(path)(**json.loads(json.dumps(arguments)))

        async def fires() -> None:
            assert [event.payload async for event in trigger.run()] == [{}]

        free = recorded("running")
        free.update(activedrivers=[], activeapps=[])
        for worker in free["workers"]:
            worker.update(coresfree=worker["cores"], memoryfree=worker["memory"])
        threading.Timer(0.5, lambda: cluster.master.web.update(free)).start()
        began = time.monotonic()
        asyncio.run(asyncio.wait_for(fires(), 20))
        assert time.monotonic() - began > 0.4
        with pytest.raises(TaskDeferred) as again:
            resumed(context, deferral, {})
        assert again.value.method_name == "execute_complete"
        assert len(cluster.master.drivers) == 1

    def test_the_wait_for_room_has_an_end(
        self, cluster: Cluster, told: MakeContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.master.web = recorded("starved")
        operator = prepare()
        with pytest.raises(TaskDeferred) as raised:
            operator.execute_with_room(told(), {}, waiting_since=time.time() - 3600)
        assert raised.value.method_name == "execute_complete"
