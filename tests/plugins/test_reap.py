"""Drivers that nobody waits for are ended, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from tests.plugins.conftest import Worker
from tests.plugins.fake_rest import FakeMaster, fake_master
from tests.plugins.test_spark_driver import a_driver, answer_states

from trainyard import store
from trainyard_airflow import cluster_driver, drivers
from trainyard_airflow.operators.reap import EndLostDriversOperator


@pytest.fixture
def master(worker: Worker) -> Iterator[FakeMaster]:
    with fake_master() as served:
        worker.set(AIRFLOW_CONN_SPARK_DEFAULT=served.connection())
        yield served


def record(worker: Worker, master: FakeMaster, name: str, **values: Any) -> None:
    master.drivers[name] = "RUNNING"
    old = {"submission": name, "submitted": 1.0, "task_id": name}
    drivers.record(a_driver(f"{worker.store}/{name}", **{**old, **values}))


def reap(**arguments: Any) -> dict[str, Any]:
    context: Any = {}
    return EndLostDriversOperator(task_id="end", **arguments).execute(context)


def test_a_driver_stays_while_its_task_waits_and_ends_with_it(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("waits", "retries", "failed", "gone"):
        record(worker, master, name)
    states = {"waits": "deferred", "retries": "up_for_retry", "failed": "failed"}
    answer_states(monkeypatch, {"a_run": states})
    told = reap()
    assert sorted(master.killed) == ["failed", "gone"]
    assert (told["kept"], sorted(told["ended"])) == (2, ["failed", "gone"])
    assert sorted(driver.submission for driver in drivers.recorded()) == ["retries", "waits"]


def test_the_driver_of_before_a_clear_is_ended(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(worker, master, "old", task_id="train", generation=2)
    record(worker, master, "new", task_id="train", generation=5, submitted=2.0)
    answer_states(monkeypatch, {"a_run": {"train": "deferred"}})
    reap()
    assert master.killed == ["old"]


def test_a_young_driver_and_a_dry_run_are_left_alone(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_states(monkeypatch, {})
    drivers.record(a_driver(f"{worker.store}/young", submission="young"))
    record(worker, master, "lost")
    assert reap(only_list="True")["ended"] == ["lost"]
    assert master.killed == []
    assert reap() == {"kept": 1, "ended": ["lost"]}
    assert master.killed == ["lost"]


def test_one_that_does_not_end_does_not_save_the_others(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_states(monkeypatch, {})
    ending = cluster_driver.end

    def end(driver: Any) -> None:
        ending(driver, patience=0.3)

    monkeypatch.setattr(cluster_driver, "end", end)
    record(worker, master, "obeys", submitted=3.0)
    record(worker, master, "does-not", submitted=2.0)
    master.obeys = False
    master.drivers["obeys"] = "FINISHED"
    with pytest.raises(AirflowException, match="does-not"):
        reap()
    left = [dataclasses.asdict(driver)["submission"] for driver in drivers.recorded()]
    assert left == ["does-not"], "the next run tries it again"


def test_a_record_that_is_none_does_not_save_the_others(
    worker: Worker, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_states(monkeypatch, {})
    record(worker, master, "lost")
    for name, text in (("torn", b'{"submission"'), ("other", b'{"made_by": "somebody"}')):
        store.write_bytes(f"{worker.store}/drivers/{name}.json", text)
    assert reap() == {"kept": 0, "ended": ["lost"]}
