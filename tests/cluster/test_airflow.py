"""The DAG mnist_horovod on a standalone cluster, with nothing changed but the connection."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.runs import SECONDS, Run, dag_ids, wait_until

from services.api import Api
from services.installation import Installation
from services.standalone import Standalone
from trainyard.layout import safe_name

pytestmark = pytest.mark.timeout(600)

DAG = "mnist_horovod"
JOBS = ["prepare", "train", "evaluate", "predict"]
KILL_SECONDS = 10


def claims(run_dir: str) -> list[str]:
    return sorted(path.name for path in Path(run_dir, "claims").glob("*.json"))


@pytest.fixture(scope="module")
def finished(api: Api, cluster: Standalone) -> Run:
    wait_until(lambda: DAG in dag_ids(api), 60)
    run = Run.trigger(api, DAG, epochs=3, minimum_accuracy=0.5, seed=1)
    held = []

    def train_waits() -> bool:
        if run.tasks()["train"]["state"] == "deferred":
            pool = api.get("pools", "default_pool")
            held.append((pool["running_slots"], pool["deferred_slots"]))
        return len(held) >= 3

    wait_until(train_waits, SECONDS)
    assert set(held) == {(0, 1)}, "a task that waits holds no slot"
    assert run.wait() == "success"
    return run


def test_the_whole_dag_is_green_and_one_claim_did_each_job(
    finished: Run, cluster: Standalone
) -> None:
    for task in JOBS:
        result = finished.xcom(task)
        assert claims(result["run_dir"]) == ["0001.json"]
        assert result["claim"] == 1
    assert {task["try_number"] for task in finished.tasks().values()} == {1}
    assert finished.xcom("promote")["promoted"] is True
    log = finished.log("train")
    assert "deploy mode cluster" in log
    assert "epoch 3/3" in log, "the run's progress is told when the task resumes"
    wait_until(lambda: not cluster.jobs(), KILL_SECONDS)


def test_nobody_is_written_down_as_waiting_afterwards(
    finished: Run, installation: Installation
) -> None:
    assert list((installation.home / "store" / "drivers").iterdir()) == []


class TestWhileDeferred:
    """A user, or the clock, ends the task while its driver trains."""

    def training(self, finished: Run, installation: Installation, dag_id: str) -> Run:
        dataset = finished.xcom("prepare")["outputs"]["dataset"]
        run = Run.trigger(finished.api, dag_id, dataset=dataset)
        self.wait_until_it_trains(run, installation)
        return run

    def wait_until_it_trains(
        self, run: Run, installation: Installation, generation: str = "g*"
    ) -> None:
        place = f"store/{run.dag_id}/{safe_name(run.run_id)}/train/{generation}/events/*rank0*"
        wait_until(lambda: list(installation.home.glob(place)), SECONDS)
        wait_until(lambda: run.tasks()["train"]["state"] == "deferred", SECONDS)

    @pytest.mark.parametrize("state", ["failed", "success"])
    def test_marking_ends_driver_and_executors(
        self, finished: Run, installation: Installation, cluster: Standalone, state: str
    ) -> None:
        run = self.training(finished, installation, "long_training")
        assert cluster.jobs()
        run.api.patch(*run.path, "taskInstances", "train", body={"new_state": state})
        wait_until(lambda: not cluster.jobs(), KILL_SECONDS)
        assert run.wait() == state

    def test_a_clear_ends_the_old_driver_and_works_in_a_new_directory(
        self, finished: Run, installation: Installation, cluster: Standalone
    ) -> None:
        run = self.training(finished, installation, "long_training")
        (old,) = installation.home.glob(f"store/*/{safe_name(run.run_id)}/train/g*")
        before = {(p.pid, p.started) for p in cluster.jobs()}
        which = {"task_ids": ["train"], "dag_run_id": run.run_id, "only_failed": False}
        body = {"dry_run": False, **which}
        run.api.post("dags", run.dag_id, "clearTaskInstances", body=body)
        wait_until(lambda: not before & {(p.pid, p.started) for p in cluster.jobs()}, KILL_SECONDS)
        directories = f"store/*/{safe_name(run.run_id)}/train/g*"
        wait_until(lambda: len(list(installation.home.glob(directories))) == 2, SECONDS)
        (new,) = set(installation.home.glob(directories)) - {old}
        self.wait_until_it_trains(run, installation, new.name)
        assert claims(str(old)) == claims(str(new)) == ["0001.json"]
        run.api.patch(*run.path, "taskInstances", "train", body={"new_state": "failed"})
        wait_until(lambda: not cluster.jobs(), KILL_SECONDS)

    def test_the_execution_timeout_ends_it(
        self, finished: Run, installation: Installation, cluster: Standalone
    ) -> None:
        run = self.training(finished, installation, "timed_training")
        assert run.wait() == "failed"
        assert "longer than the task's execution_timeout" in run.log("train")
        assert not cluster.jobs()
        task = run.tasks()["train"]
        assert 90 <= task["duration"] < 90 + 25
