"""A search whose driver or executor is killed: nothing is done twice, and nothing lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
from boosted import real_dataset
from tests.faults.conftest import ROOT, environment, submission

from trainyard import rundir, store
from trainyard.dataset import Dataset
from trainyard.specs import Tune

pytestmark = pytest.mark.timeout(300)

TRIALS = 6


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return real_dataset(tmp_path_factory.mktemp("digits"), "multiclass")


def spec_of(run_dir: Path, dataset: Dataset) -> Tune:
    return Tune.from_mapping(
        {
            "run_dir": str(run_dir),
            "dataset": dataset.directory,
            "engine": "xgboost",
            "fixed": {"rounds": 80, "checkpoint_every": 5},
            "space": {"learning_rate": {"low": 0.01, "high": 0.05}},
            "trials": TRIALS,
            "pruner": "none",
        }
    )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts searches in process groups of their own, which end with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(spec: Tune, master: str, **conf: str) -> subprocess.Popen[str]:
        command = submission(ROOT / "jobs" / "tune.py", *spec.argv(), master=master, **conf)
        tracking = f"sqlite:///{tmp_path}/mlflow.db"
        with (tmp_path / "log").open("a") as log:
            process = subprocess.Popen(
                command,
                env=environment(MLFLOW_TRACKING_URI=tracking),
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ended(study: Path, work: Path) -> dict[int, optuna.trial.FrozenTrial]:
    """The trials that a study's file says have ended, by number."""
    if not study.exists():
        return {}
    copy = shutil.copy(study, work)
    [name] = optuna.get_all_study_names(f"sqlite:///{copy}")
    found = optuna.load_study(study_name=name, storage=f"sqlite:///{copy}")
    return {trial.number: trial for trial in found.trials if trial.state.is_finished()}


def resumable(run_dir: Path) -> set[int]:
    """The trials that have a checkpoint; one that ended has none."""
    found = run_dir.glob("trials/*/checkpoints/round-*")
    return {int(checkpoint.parent.parent.name) for checkpoint in found}


def wait_for_some(study: Path, work: Path) -> dict[int, optuna.trial.FrozenTrial]:
    """Wait until two trials have ended, and two others have made a checkpoint."""
    deadline = time.monotonic() + 120
    while len(found := ended(study, work)) < 2 or len(resumable(study.parent)) < 2:
        assert time.monotonic() < deadline, "the search does not get on"
        time.sleep(0.2)
    return found


def claims_of(run_dir: Path, trial: int) -> set[int]:
    """The claims under which a trial worked, by what it told."""
    directory = str(run_dir / "trials" / f"{trial:05d}")
    return {rundir.claim_of(event["writer"]) for event in rundir.read_events(directory, {})}


def test_a_killed_search_goes_on(tmp_path: Path, dataset: Dataset, started: Any) -> None:
    run_dir = tmp_path / "run"
    spec = spec_of(run_dir, dataset)
    first = started(spec, "local[2]")
    done = wait_for_some(run_dir / "study.db", tmp_path / "copy.db")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    done |= ended(run_dir / "study.db", tmp_path / "copy.db")
    kept = resumable(run_dir) - set(done)
    assert 1 <= len(kept) <= 2
    assert 2 <= len(done) < TRIALS
    assert started(spec, "local[2]").wait() == 0, (tmp_path / "log").read_text()[-4000:]

    after = ended(run_dir / "study.db", tmp_path / "copy.db")
    assert {trial.state.name for trial in after.values()} == {"COMPLETE"}
    assert sorted(after) == list(range(TRIALS))
    for number, trial in done.items():
        assert after[number] == trial, "not touched"
        assert claims_of(run_dir, number) == {1}, "not run again"
    for number in kept:
        assert claims_of(run_dir, number) == {1, 2}
        told = rundir.read_events(str(run_dir / "trials" / f"{number:05d}"), {})
        notes = [event["text"] for event in told if event["kind"] == "note"]
        assert any("resumes after round" in note for note in notes)
    result = store.read_json(str(run_dir / "result.json"))
    assert result["trials"] == {"complete": TRIALS, "pruned": 0, "fail": 0}


def executors_of(driver: int) -> list[psutil.Process]:
    """The executors below a driver that live."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie too
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process)
    return found


def test_a_trial_that_loses_its_executor_is_tried_again(
    tmp_path: Path, dataset: Dataset, started: Any
) -> None:
    run_dir = tmp_path / "run"
    search = started(spec_of(run_dir, dataset), "local-cluster[2,1,1024]")
    wait_for_some(run_dir / "study.db", tmp_path / "copy.db")
    executors = executors_of(search.pid)
    assert len(executors) == 2
    executors[0].kill()
    assert search.wait() == 0, (tmp_path / "log").read_text()[-4000:]
    result = store.read_json(str(run_dir / "result.json"))
    assert result["trials"] == {"complete": TRIALS, "pruned": 0, "fail": 0}
