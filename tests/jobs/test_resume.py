"""Ranks that are killed: the job starts them again, and ends where an undisturbed one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from job_runs import notes, run_in
from made_datasets import some_digits, write_dataset

from train_horovod import launch_in
from trainyard import rundir
from trainyard.barrier.failures import LostRankError
from trainyard.dataset import Dataset
from trainyard.horovod.history import TrainResult
from trainyard.models import load_model
from trainyard.specs import TrainHorovod

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

# Two ranks take 4 steps an epoch. Rank 0 asks for the state when it starts, and twice an epoch: for
# the best weights and for the checkpoint.
BEFORE_A_CHECKPOINT = (1, "forward", 2)
IN_THE_SECOND_EPOCH = (1, "forward", 6)
AT_THE_LAST_CHECKPOINT = (0, "state_dict", 4)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    splits = {"train": some_digits(0, 200), "validation": some_digits(200, 240)}
    return write_dataset(tmp_path_factory.mktemp("digits"), splits, classes=10)


def spec_of(run_dir: Path, dataset: Dataset, deaths: list[Any], **settings: Any) -> TrainHorovod:
    run_dir.mkdir(exist_ok=True)
    params = {"width": 784, "classes": 10, "deaths": deaths, "memory": str(run_dir)}
    given = {
        "run_dir": str(run_dir),
        "dataset": dataset.directory,
        "model_name": "test",
        "network": "dying_networks:Dying",
        "network_params": params,
        "input_shape": [784],
        "epochs": 3,
        "batch_size": 25,
        "optimizer": "Adam",
        "optimizer_params": {},
        "learning_rate": 1e-5,
        **settings,
    }
    return TrainHorovod.from_mapping(given)


def figures(result: TrainResult) -> list[dict[str, Any]]:
    return [{**epoch.figures(), "rows_per_second": 0} for epoch in result.history]


@pytest.fixture(scope="module")
def undisturbed(
    spark: SparkSession, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> TrainResult:
    spark.sparkContext.addPyFile(str(Path(__file__).with_name("dying_networks.py")))
    directory = tmp_path_factory.mktemp("undisturbed")
    spec = spec_of(directory, dataset, [])
    return launch_in(spark.sparkContext, spec, dataset, run_in(directory))


@pytest.mark.timeout(240)
def test_killed_at_three_moments_it_ends_the_same(
    spark: SparkSession, dataset: Dataset, undisturbed: TrainResult, tmp_path: Path
) -> None:
    deaths = [BEFORE_A_CHECKPOINT, IN_THE_SECOND_EPOCH, AT_THE_LAST_CHECKPOINT]
    spec = spec_of(tmp_path, dataset, deaths, relaunches=3)
    result = launch_in(spark.sparkContext, spec, dataset, run_in(tmp_path))

    assert [(tmp_path / f"death-{number}").exists() for number in range(3)] == [True] * 3
    assert result.resumed == 2
    assert figures(result) == figures(undisturbed)
    assert result.state is not None
    assert undisturbed.state is not None
    assert all(torch.equal(v, undisturbed.state[name]) for name, v in result.state.items())

    metrics = [e for e in rundir.read_events(str(tmp_path), {}) if e["kind"] == "metric"]
    curve = {event["step"]: event["values"] for event in metrics}
    assert curve == {epoch.number: epoch.figures() for epoch in result.history}, "it has no hole"

    told = notes(tmp_path)
    relaunches = [text for text in told if "relaunch" in text]
    assert [text.split(" (")[0] for text in relaunches] == ["rank 1", "rank 1", "rank 0"]
    assert all("was killed" in text for text in relaunches)
    assert [text.split()[-3:] for text in relaunches] == [[n, "of", "3."] for n in "123"]
    assert [text for text in told if "resumes" in text] == [
        "training resumes after epoch 1",
        "training resumes after epoch 2",
    ]


@pytest.mark.timeout(120)
def test_ranks_that_die_too_often_end_the_job(
    spark: SparkSession, dataset: Dataset, undisturbed: TrainResult, tmp_path: Path
) -> None:
    deaths = [(1, "forward", 0), (1, "forward", 0)]
    spec = spec_of(tmp_path, dataset, deaths, relaunches=1)
    with pytest.raises(LostRankError, match=r"rank 1 \(process \d+ on .*\) was killed"):
        launch_in(spark.sparkContext, spec, dataset, run_in(tmp_path))
    assert len([text for text in notes(tmp_path) if "relaunch 1 of 1" in text]) == 1


@pytest.mark.timeout(240)
def test_a_new_job_goes_on_where_the_killed_one_stopped(
    dataset: Dataset, undisturbed: TrainResult, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    deaths = [IN_THE_SECOND_EPOCH]
    spec = spec_of(run_dir, dataset, deaths, relaunches=0)
    first = submit(spec, tmp_path)
    assert first.returncode == 1, first.stderr
    failure = rundir.read_failure(str(run_dir))
    assert failure is not None
    assert failure["cause"].startswith("rank 1 (process")
    second = submit(spec, tmp_path)
    assert second.returncode == 0, second.stderr
    assert "training resumes after epoch 1" in notes(run_dir)
    result = rundir.read_result(str(run_dir))
    assert result is not None
    assert result["metrics"]["validation_loss"] == undisturbed.best.validation_loss
    network, _ = load_model(result["outputs"]["model"])
    assert undisturbed.state is not None
    for name, value in network.state_dict().items():
        assert torch.equal(value, undisturbed.state[name])


def submit(spec: TrainHorovod, directory: Path) -> subprocess.CompletedProcess[str]:
    program = [str(BIN / "spark-submit"), "--master", "local[2]"]
    own = ["--py-files", str(Path(__file__).with_name("dying_networks.py"))]
    return subprocess.run(
        [*program, *own, str(ROOT / "jobs/train_horovod.py"), *spec.argv()],
        env={
            **os.environ,
            "MLFLOW_TRACKING_URI": f"sqlite:///{directory}/mlflow.db",
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "jobs"),
        },
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
