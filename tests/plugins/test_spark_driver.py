"""The trigger: what it carries, when it fires, and when it kills."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from airflow._shared.module_loading import import_string
from airflow.sdk.exceptions import AirflowException
from tests.plugins.conftest import Worker
from tests.plugins.fake_rest import FakeMaster, fake_master

from trainyard import claims, rundir, store, tickets
from trainyard.repeating import Repeating
from trainyard_airflow import cluster_driver, drivers, ending, progress, waiting
from trainyard_airflow.capacity import Demand
from trainyard_airflow.drivers import Driver
from trainyard_airflow.triggers import spark_room
from trainyard_airflow.triggers.spark_driver import SparkDriverTrigger

SUBMISSION = "driver-20261130000000-0000"


@pytest.fixture
def master(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
    monkeypatch.setattr(waiting, "YOUNG_SECONDS", 0.05)
    with fake_master() as served:
        served.drivers[SUBMISSION] = "RUNNING"
        worker.set(AIRFLOW_CONN_SPARK_DEFAULT=served.connection())
        yield served


def a_driver(run_dir: str, **values: Any) -> Driver:
    driver = Driver(
        submission=SUBMISSION,
        ticket=1,
        earlier_claim=0,
        submitted=time.time(),
        run_dir=run_dir,
        generation=2,
        conn_id="spark_default",
        dag_id="a_dag",
        run_id="a_run",
        task_id="prepare",
        map_index=-1,
    )
    return dataclasses.replace(driver, **values)


def a_trigger(run_dir: str, deadline: float | None = None, **values: Any) -> SparkDriverTrigger:
    driver = a_driver(run_dir, **values)
    return SparkDriverTrigger(driver=driver.to_mapping(), deadline=deadline)


def fired(trigger: SparkDriverTrigger, seconds: float = 20) -> dict[str, Any]:
    """The payload of the one event that a trigger fires."""

    async def all_events() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    (payload,) = asyncio.run(asyncio.wait_for(all_events(), seconds))
    return dict(payload)


def later(seconds: float, action: Callable[[], object]) -> None:
    threading.Timer(seconds, action).start()


def claim(
    run_dir: str, *, submission: str, lives: bool, number: int = 1, host: str = os.uname().nodename
) -> None:
    """A claim of this process, or of one that is gone; or one whose host is another machine."""
    record = {
        "number": number,
        "host": host,
        "boot": claims._boot_id(),
        "pid": os.getpid() if lives else 2**22 + 1,
        "started": claims._process_start(os.getpid()) if lives else 5,
        "session": 1,
        "submission": submission,
        "time": time.time(),
    }
    store.write_json(f"{run_dir}/claims/{number:04d}.json", record)


def test_it_is_made_again_from_what_it_serializes_which_holds_no_secret(
    worker: Worker, master: FakeMaster
) -> None:
    master.token = "top-secret"
    worker.set(AIRFLOW_CONN_SPARK_DEFAULT=master.connection(password="top-secret"))
    path, arguments = a_trigger(worker.run_dir(), deadline=123.5).serialize()
    text = json.dumps(arguments)
    assert "top-secret" not in text
    again = import_string(path)(**json.loads(text))
    assert again.serialize() == (path, arguments)
    master.drivers[SUBMISSION] = "FINISHED"
    assert fired(import_string(path)(**(arguments | {"deadline": None})))["state"] == "FINISHED"


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED", "ERROR"])
def test_it_fires_once_when_the_driver_has_ended(
    worker: Worker, master: FakeMaster, state: str
) -> None:
    later(0.3, lambda: master.drivers.update({SUBMISSION: state}))
    assert fired(a_trigger(worker.run_dir())) == {
        "state": state,
        "worker": "10.0.0.7:41000",
        "timed_out": False,
    }
    assert master.polls[SUBMISSION] > 2
    assert master.killed == []


def test_past_the_deadline_the_driver_is_dead_before_it_fires(
    worker: Worker, master: FakeMaster
) -> None:
    began = time.time()
    event = fired(a_trigger(worker.run_dir(), deadline=began + 0.5))
    assert event["timed_out"] is True
    assert master.killed == [SUBMISSION]
    assert master.drivers[SUBMISSION] == "KILLED"
    assert 0.5 <= time.time() - began < 3


def test_a_deadline_wakes_an_old_driver_in_time(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "YOUNG_SECONDS", 1.5)
    began = time.time()
    fired(a_trigger(worker.run_dir(), deadline=began + 0.5, submitted=began - 36_000))
    assert time.time() - began < 3, "it does not sleep through its deadline"


def test_a_master_that_is_away_ends_nothing(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.standby = True
    later(0.5, lambda: setattr(master, "standby", False))
    later(0.7, lambda: master.drivers.update({SUBMISSION: "FINISHED"}))
    assert fired(a_trigger(worker.run_dir()))["state"] == "FINISHED"


def test_a_forgotten_driver_that_works_is_waited_for(worker: Worker, master: FakeMaster) -> None:
    master.drivers.clear()
    claim(worker.run_dir(), submission=SUBMISSION, lives=True)
    began = time.time()
    later(0.6, lambda: store.write_bytes(f"{worker.run_dir()}/claims/0001.end", b"released\n"))
    assert fired(a_trigger(worker.run_dir()))["state"] == "NOT_FOUND"
    assert time.time() - began >= 0.6


def test_a_driver_that_died_while_no_master_answers_is_lost(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_LOST_SECONDS", 0.3)
    master.standby = True
    claim(worker.run_dir(), submission=SUBMISSION, lives=False)
    assert fired(a_trigger(worker.run_dir()))["state"] == "NOT_FOUND"


def test_progress_is_told_while_it_waits(
    worker: Worker,
    master: FakeMaster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(waiting, "_RELAY_SECONDS", 0.1)
    before = rundir.EventWriter(worker.run_dir(), claim=0, writer="driver")
    before.note("of an earlier driver")
    before.close()
    events = rundir.EventWriter(worker.run_dir(), claim=1, writer="driver")

    def tell() -> None:
        events.note("now")
        events.close()

    later(0.2, tell)
    later(0.8, lambda: master.drivers.update({SUBMISSION: "FINISHED"}))
    fired(a_trigger(worker.run_dir()))
    log = capsys.readouterr().out
    assert "now" in log
    assert "of an earlier driver" not in log


def test_what_was_told_before_is_not_even_read_again(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = count_reads(monkeypatch, worker, segments=300)
    later(0.5, lambda: master.drivers.update({SUBMISSION: "FINISHED"}))
    fired(a_trigger(worker.run_dir()))
    with progress.ProgressFollower(worker.run_dir(), structlog.get_logger()):
        pass
    assert read == []


def test_the_story_of_a_long_run_is_read_in_part_from_its_first_event_to_its_last(
    worker: Worker,
    master: FakeMaster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read = count_reads(monkeypatch, worker, segments=300)
    story = cluster_driver.ClusterDriver(a_driver(worker.run_dir()), structlog.get_logger())
    story._tell_story()
    assert 20 <= len(read) <= 40
    log = capsys.readouterr().out
    assert "epoch 1/300" in log
    assert "100% epoch 300/300" in log
    assert 10 <= log.count("epoch ") <= 25, "few lines, all along"
    read.clear()
    rundir.sample_events(worker.run_dir(), after_claim=1, most=40)
    assert read == [], "none of an earlier driver"


def count_reads(monkeypatch: pytest.MonkeyPatch, worker: Worker, *, segments: int) -> list[str]:
    """The names of the segments that are read from now on, of so many that a run wrote."""
    for n in range(1, segments + 1):
        event = {"time": 1e9 + n, "kind": "progress", "stage": "train", "unit": "epoch"}
        line = json.dumps(event | {"done": n, "total": segments, "figures": {}}).encode()
        store.write_bytes(f"{worker.run_dir()}/events/0001-driver-{n:06d}.jsonl", line)
    read: list[str] = []
    real = store.read_bytes

    def read_bytes(uri: str, *, most: int | None = None) -> bytes:
        if uri.endswith(".jsonl"):
            read.append(uri)
        return real(uri, most=most)

    monkeypatch.setattr(store, "read_bytes", read_bytes)
    return read


def test_polls_are_quick_while_it_is_young_and_rare_when_it_is_old() -> None:
    def mean(age: float) -> float:
        return sum(waiting.pace(age) for _ in range(200)) / 200

    assert max(waiting.pace(30) for _ in range(200)) <= 2
    assert mean(0) == pytest.approx(1.5, rel=0.05)
    assert mean(400) == pytest.approx(10, rel=0.05)
    assert max(waiting.pace(1e6) for _ in range(200)) <= 18


OVER: list[str | None] = ["failed", "success", "skipped", "upstream_failed", "removed", None]
NOT_OVER: list[str | None] = [
    "deferred",
    "running",
    "queued",
    "scheduled",
    "restarting",
    "up_for_retry",
    "up_for_reschedule",
]


@pytest.mark.parametrize("state", OVER + NOT_OVER)
def test_it_kills_only_when_its_task_is_over(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    told = {"a_run": {"prepare": state}} if state else {"a_run": {"prepare": None}}
    answer_states(monkeypatch, told)
    tickets.issue(worker.run_dir())
    drivers.record(a_driver(worker.run_dir()))
    asyncio.run(a_trigger(worker.run_dir()).on_kill())
    assert master.killed == ([SUBMISSION] if state in OVER else [])
    is_fenced = tickets.last(worker.run_dir()) > 1
    assert is_fenced is (state in OVER), "one that is still on its way is fenced off too"
    assert bool(list(drivers.recorded())) is (state not in OVER)


def test_a_kill_that_airflow_cancels_again_and_again_still_kills(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The triggerer repeats its cancellation with every sync until the trigger has ended."""
    answer_states(monkeypatch, {"a_run": {"prepare": "failed"}}, seconds=0.4)

    async def triggerer() -> None:
        kill = asyncio.create_task(a_trigger(worker.run_dir()).on_kill())
        for _ in range(3):
            await asyncio.sleep(0.05)
            kill.cancel("again")
        await asyncio.wait([kill])
        assert kill.cancelled()
        assert master.killed == [], "it has not even asked yet"
        while not master.killed:
            await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(triggerer(), 20))
    assert master.drivers[SUBMISSION] == "KILLED"


def test_a_task_that_is_gone_has_no_state(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_states(monkeypatch, {})
    assert ending.task_state(a_driver(worker.run_dir())) is None


def test_a_mapped_task_is_asked_for_by_its_index(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer_states(monkeypatch, {"a_run": {"prepare_3": "failed", "prepare_4": "deferred"}})
    assert ending.task_state(a_driver(worker.run_dir(), map_index=3)) == "failed"
    assert asked[-1]["map_index"] == 3


def answer_states(
    monkeypatch: pytest.MonkeyPatch, states: dict[str, dict[str, Any]], seconds: float = 0.0
) -> list[dict[str, Any]]:
    """Airflow answers with these states; what it was asked is noted."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    asked: list[dict[str, Any]] = []

    def get_task_states(**arguments: Any) -> dict[str, dict[str, Any]]:
        asked.append(arguments)
        time.sleep(seconds)
        return states

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(get_task_states))
    return asked


def test_a_driver_whose_id_was_lost_is_ended_by_its_claim(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = worker.run_dir()
    claim(run_dir, submission=SUBMISSION, lives=True)

    def release() -> None:
        while not master.killed:
            time.sleep(0.05)
        store.write_bytes(f"{run_dir}/claims/0001.end", b"released\n")

    thread = threading.Thread(target=release)
    thread.start()
    answer_states(monkeypatch, {"a_run": {"prepare": "failed"}})
    asyncio.run(a_trigger(run_dir, submission="").on_kill())
    thread.join()
    assert master.killed == [SUBMISSION]


def test_a_driver_of_another_machine_is_dead_when_the_master_says_so(
    worker: Worker, master: FakeMaster
) -> None:
    claim(worker.run_dir(), submission=SUBMISSION, lives=False, host="elsewhere")
    began = time.monotonic()
    cluster_driver.end(a_driver(worker.run_dir()))
    assert time.monotonic() - began < 5, "its lease is not waited for"
    assert master.killed == [SUBMISSION]


def test_a_driver_whose_worker_was_lost_may_still_work(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LEASE_SECONDS", 20.0)
    monkeypatch.setattr(cluster_driver, "_MARGIN_SECONDS", 20.0)
    master.drivers[SUBMISSION] = "ERROR"
    run_dir = worker.run_dir()
    claim(run_dir, submission=SUBMISSION, lives=False, host="elsewhere")
    beats = itertools.count()

    def beat() -> None:
        store.write_bytes(f"{run_dir}/claims/0001.beat", b"%d\n" % next(beats))

    works = pytest.raises(AirflowException, match="on elsewhere still works")
    with Repeating(beat, every=0.1, name="beat"), works:
        cluster_driver.end(a_driver(run_dir), patience=0.1)


def test_a_kill_keeps_its_time_whatever_it_waits_for(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_driver, "KILL_SECONDS", 0.5)
    monkeypatch.setattr(claims, "LEASE_SECONDS", 3.0)
    claim(worker.run_dir(), submission="driver-of-before", lives=False, host="elsewhere")
    began = time.monotonic()
    with pytest.raises(AirflowException, match="cause: there is no answer within 1"):
        cluster_driver.ClusterDriver(a_driver(worker.run_dir()), structlog.get_logger()).end()
    assert time.monotonic() - began < 2.5
    assert master.killed == [SUBMISSION]


def test_records_are_one_a_run_directory(worker: Worker, tmp_path: Path) -> None:
    first = a_driver(worker.run_dir())
    second = dataclasses.replace(first, submission="driver-2", ticket=2)
    other = dataclasses.replace(first, run_dir=worker.run_dir(3))
    for driver in (first, second, other):
        drivers.record(driver)
    assert sorted(d.run_dir for d in drivers.recorded()) == sorted([first.run_dir, other.run_dir])
    drivers.forget(first)
    assert list(drivers.recorded()) == [other]


def test_a_store_that_is_away_while_no_master_answers_ends_nothing(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_LOST_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "YOUNG_SECONDS", 0.1)
    asked: list[str] = []

    def away(run_dir: str) -> Any:
        asked.append(run_dir)
        raise OSError("the store is away")

    monkeypatch.setattr(waiting, "last_claim", away)
    master.standby = True
    later(0.7, lambda: setattr(master, "standby", False))
    later(0.7, lambda: master.drivers.update({SUBMISSION: "FINISHED"}))
    assert fired(a_trigger(worker.run_dir()))["state"] == "FINISHED"
    assert asked, "the store was never asked"


def test_room_is_waited_for_while_airflow_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception | None] = [RuntimeError("the API server starts"), None]

    def resolve(*_: Any, **__: Any) -> Any:
        if error := answers.pop(0):
            raise error
        return SimpleNamespace(web=())

    monkeypatch.setattr(spark_room, "resolve", resolve)
    monkeypatch.setattr(spark_room, "check_room", lambda *_, **__: None)
    monkeypatch.setattr(spark_room, "_POLL_SECONDS", 0.01)
    demand = dataclasses.asdict(Demand(job="x", slots=1, driver_cores=1, driver_memory=1))
    trigger = spark_room.SparkRoomTrigger(conn_id="it", demand=demand, since=time.time())

    async def fires() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    assert asyncio.run(asyncio.wait_for(fires(), 20)) == [{}]
    assert answers == []
