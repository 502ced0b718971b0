"""The DAG mnist_horovod from end to end: real Airflow, real Spark, two real Horovod ranks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.own_airflow import ROOT
from tests.e2e.runs import SECONDS, Run, dag_ids, wait_until

from services import processes
from services.api import Api
from services.installation import MARK, Installation
from trainyard.layout import safe_name

pytestmark = pytest.mark.timeout(600)

DAG = "mnist_horovod"
TASKS = ["prepare", "train", "evaluate", "promote", "predict"]
QUICK = {"epochs": 3, "minimum_accuracy": 0.5}
"""Settings with which a run is short and still learns."""


def trigger(api: Api, **conf: Any) -> Run:
    return Run.trigger(api, DAG, **{**QUICK, **conf})


@pytest.fixture(scope="module")
def first(api: Api) -> Run:
    wait_until(lambda: DAG in dag_ids(api), 60)
    run = trigger(api, seed=1)
    assert run.wait() == "success"
    return run


@pytest.fixture(scope="module")
def second(first: Run) -> Run:
    run = trigger(first.api, seed=2)
    assert run.wait() == "success"
    return run


def test_first_run_trains_promotes_and_predicts(first: Run) -> None:
    prepared, trained, evaluated, promoted, predicted = (first.xcom(task) for task in TASKS)

    rows = prepared["rows"]
    assert rows["in"] == 5000 == rows["out"] + rows["quarantined"]
    assert rows["out"] == rows["train"] + rows["validation"] + rows["test"]
    assert trained["model"]["name"] == "mnist"
    assert trained["metrics"]["epochs"] == 3
    accuracy = evaluated["metrics"]["accuracy"]
    # Three epochs reach 0.85 or more; chance is 0.1.
    assert 0.7 < accuracy["low"] <= accuracy["value"] <= accuracy["high"] <= 1
    assert evaluated["champion"] is None
    assert evaluated["rows"]["test"] == rows["test"]
    assert promoted["promoted"] is True
    assert promoted["champion"]["uri"] == trained["outputs"]["model_uri"]
    told = json.loads(Path(evaluated["outputs"]["report"], "verdict.json").read_text())
    assert told["promoted"] is True
    assert told["verdict"] == promoted["verdict"]
    assert all(rule["passed"] for rule in told["verdict"])
    assert predicted["model"]["version"] == trained["model"]["version"]
    assert predicted["rows"] == {"in": rows["test"], "out": rows["test"], "quarantined": 0}
    assert {task["try_number"] for task in first.tasks().values()} == {1}


def test_predictions_are_one_row_for_each_test_row(first: Run) -> None:
    table = first.xcom("predict")["outputs"]["predictions"]
    test = first.xcom("prepare")["outputs"]["dataset"]
    count = (
        "import json, sys, pyarrow.dataset as ds\n"
        "scored = ds.dataset(sys.argv[1]).to_table().to_pylist()\n"
        "print(json.dumps([len(scored), len({str(row['key']) for row in scored})]))"
    )

    python = ROOT / ".venv/jobs/bin/python"
    done = subprocess.run([python, "-c", count, table], capture_output=True, text=True, check=True)

    rows = first.xcom("evaluate")["rows"]["test"]
    assert json.loads(done.stdout) == [rows, rows]
    assert Path(test, "dataset.json").exists()


def test_asset_events_say_what_was_made(first: Run) -> None:
    found = {}
    for event in first.api.get("assets", "events", limit=100)["asset_events"]:
        if event["source_run_id"] == first.run_id:
            found[event["name"]] = (event["source_task_id"], event["extra"])

    assert {name: task for name, (task, _) in found.items()} == {
        "mnist_dataset": "prepare",
        "mnist_model": "train",
        "mnist_predictions": "predict",
    }
    for name, output in [("mnist_dataset", "dataset"), ("mnist_predictions", "predictions")]:
        task, extra = found[name]
        assert extra[f"outputs.{output}"] == first.xcom(task)["outputs"][output]
    assert found["mnist_model"][1]["outputs.model_uri"] == "models:/mnist/1"


def test_second_run_is_judged_against_the_champion_on_the_same_rows(
    first: Run, second: Run
) -> None:
    evaluated, promoted = second.xcom("evaluate"), second.xcom("promote")

    assert evaluated["champion"]["version"] == first.xcom("promote")["champion"]["version"]
    # The same model on the same rows has the same accuracy.
    champion, before = evaluated["champion"]["metrics"], first.xcom("evaluate")["metrics"]
    assert champion["accuracy"]["value"] == pytest.approx(before["accuracy"]["value"], abs=1e-9)
    better = evaluated["metrics"]["accuracy"]["value"] > champion["accuracy"]["value"]
    assert promoted["promoted"] is better
    winner = second if better else first
    assert promoted["champion"]["uri"] == winner.xcom("train")["outputs"]["model_uri"]
    assert second.xcom("predict")["model"]["uri"] == promoted["champion"]["uri"]
    assert promoted["summary"]


def test_two_runs_share_no_directory(first: Run, second: Run) -> None:
    directories = [
        run.xcom(task)["run_dir"] for run in (first, second) for task in ("train", "prepare")
    ]

    assert len(set(directories)) == 4
    assert not [path for path in directories if ":" in path or " " in path]


def test_a_misspelt_optimizer_parameter_fails_at_once_without_a_retry(first: Run) -> None:
    run = trigger(first.api, optimizer_params={"momentun": 0.9})

    assert run.wait() == "failed"

    tasks = run.tasks()
    doctor = tasks["doctor"]
    assert (doctor["state"], doctor["try_number"], doctor["max_tries"]) == ("failed", 1, 2)
    assert tasks["prepare"]["state"] == "upstream_failed", "nothing was submitted"
    log = run.log("doctor")
    assert "momentun" in log
    assert "'momentum'" in log
    assert "cause: " in log


def test_mark_failed_leaves_no_process_within_10_seconds(
    first: Run, installation: Installation
) -> None:
    run = trigger(first.api, epochs=10_000)

    def drivers() -> list[bytes]:
        of_services = [p for p in processes.running() if processes.has_variable(p, MARK, home)]
        commands = [command(process.pid) for process in of_services]
        return [c for c in commands if b"train_horovod" in c or b"pyspark" in c or b"java" in c]

    home = str(installation.home)
    events = f"store/{DAG}/{safe_name(run.run_id)}/train/*/events/*rank0*"
    wait_until(lambda: list(installation.home.glob(events)), SECONDS)
    assert drivers()

    run.api.patch(*run.path, "taskInstances", "train", body={"new_state": "failed"})

    wait_until(lambda: not drivers(), 10)
    assert run.wait() == "failed"


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
