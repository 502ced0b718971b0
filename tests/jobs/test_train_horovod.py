"""The whole job, from a prepared dataset to a registered model, as spark-submit runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_datasets import digits, some_digits, write_dataset

from trainyard import registry, rundir
from trainyard.dataset import Dataset
from trainyard.models import load_model
from trainyard.specs import TrainHorovod

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """All 5,000 digits."""
    directory = tmp_path_factory.mktemp("digits")
    return write_dataset(directory, digits(), classes=10, row_group_rows=2048)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


def submit(
    run_dir: Path, dataset: Dataset, database: str, **settings: Any
) -> subprocess.CompletedProcess[str]:
    spec = TrainHorovod.from_mapping(
        {"run_dir": str(run_dir), "dataset": dataset.directory, "model_name": "digits", **settings}
    )
    return subprocess.run(
        [
            str(BIN / "spark-submit"),
            "--master",
            "local[2]",
            str(ROOT / "jobs/train_horovod.py"),
            *spec.argv(),
        ],
        env={
            **os.environ,
            "MLFLOW_TRACKING_URI": database,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "jobs"),
        },
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


@pytest.mark.timeout(180)
def test_two_ranks_learn_the_digits(
    tmp_path: Path, dataset: Dataset, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = submit(tmp_path, dataset, database)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["outputs"] == {
        "model": f"{tmp_path}/model",
        "model_uri": f"models:/digits/{result['model']['version']}",
    }
    assert result["rows"] == {"train": 3500, "validation": 500}
    assert result["metrics"]["epochs"] == TrainHorovod.from_mapping(result["settings"]).epochs
    assert result["fingerprints"]["dataset"] == dataset.fingerprint

    network, meta = load_model(result["outputs"]["model"])
    assert meta.settings == result["settings"]
    assert set(meta.versions) == {"torch", "horovod", "trainyard"}
    assert meta.weights_sha256 == result["fingerprints"]["model"]
    features, labels = digits()["test"]
    with torch.inference_mode():
        scores = network(torch.from_numpy(features).view(-1, *meta.input_shape))
    accuracy = np.mean(scores.argmax(1).numpy() == labels)
    assert accuracy >= 0.95

    monkeypatch.setenv(registry.TRACKING_URI, database)
    challenger = registry.find_alias("digits", "challenger")
    assert challenger is not None
    assert challenger.version == result["model"]["version"]
    assert challenger.run_id == result["model"]["mlflow_run_id"]

    events = rundir.read_events(str(tmp_path), {})
    assert {event["writer"] for event in events} == {"0001-driver", "0001-rank0"}
    finished = [e for e in events if e["kind"] == "progress" and e["done"] == e["total"]]
    assert finished[-1]["figures"]["validation_accuracy"] > 0.9


def test_says_at_once_what_cannot_work(tmp_path: Path, database: str) -> None:
    small = write_dataset(tmp_path / "data", {"train": some_digits(0, 200)}, classes=10)
    done = submit(tmp_path / "run", small, database, batch_size=512)
    assert done.returncode == 1
    failure = rundir.read_failure(str(tmp_path / "run"))
    assert failure is not None
    assert failure["cause"].startswith(
        "setting 'batch_size' is 512: the training split has 200 rows"
    )
    assert "2 ranks x 512 rows = 1024" in failure["cause"]
    assert f"cause: {failure['cause']} fix: {failure['fix']}" in done.stdout.splitlines()
    assert rundir.read_result(str(tmp_path / "run")) is None
