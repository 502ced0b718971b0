"""A driver that predicts is killed with all that it started: its retry finishes the work."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from image_files import kinds
from made_datasets import write_dataset
from tests.faults.conftest import ROOT, environment, submission
from tiny_models import store_linear

from trainyard.specs import Predict

ROWS = 90


def start(spec: Predict) -> subprocess.Popen[bytes]:
    command = submission(ROOT / "jobs/predict.py", *spec.argv(), master="local[2]")
    return subprocess.Popen(command, env=environment(), start_new_session=True)


def wait_until(reached: Any, seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.timeout(240)
def test_a_killed_driver_leaves_what_it_committed(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32)
    features[ROWS - 1, 0] = 101.0  # where the network waits
    data = {"test": (features, np.arange(ROWS) % 3)}
    dataset = write_dataset(tmp_path / "data", data, classes=3, row_group_rows=10)
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    run_dir = tmp_path / "run"
    params = {"width": 2, "classes": 3, "run_dir": str(run_dir), "parts": 99}
    network = {"network": "tiny_models:Fragile", "network_params": params}
    model = store_linear(tmp_path / "model", dataset, weight, **network)
    spec = Predict(run_dir=str(run_dir), source=dataset.directory, model=model)

    driver = start(spec)
    try:
        wait_until(lambda: len(committed(run_dir)) >= 2)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    kept = {path.name for path in run_dir.glob("predictions/c0001-*.parquet")}
    done = len(committed(run_dir))
    assert 2 <= done < 4
    (run_dir / "died").touch()  # the network waits no more

    again = start(spec)
    assert again.wait(timeout=100) == 0
    table = pq.read_table(run_dir / "predictions")
    rows = sorted(table.to_pylist(), key=lambda row: int(row["key"]))
    assert [int(row["key"]) for row in rows] == list(range(ROWS))
    assert [row["prediction"] for row in rows] == (features @ weight.numpy().T).argmax(1).tolist()
    after = {path.name for path in run_dir.glob("predictions/*.parquet")}
    assert len(after & kept) == done
    assert len(after) == 4


@pytest.mark.timeout(400)
@pytest.mark.parametrize("after", [1, 3, 6])
def test_images_are_labelled_once_however_often_the_driver_is_killed(
    tmp_path: Path, after: int
) -> None:
    folder, run_dir = tmp_path / "photographs", tmp_path / "run"
    folder.mkdir()
    for number in range(512):
        data = kinds()["webp"] if number % 2 else kinds()["jpeg"]
        (folder / f"{number:03}.jpg").write_bytes(b"" if number % 10 == 3 else data)
    model = "package:efficientnet_lite0"
    spec = Predict(run_dir=str(run_dir), source=str(folder), model=model, top_k=3, bad_rows=0.2)
    kept: dict[str, int] = {}
    for count in (after, after + 1):
        driver = start(spec)
        try:
            wait_until(lambda count=count: len(committed(run_dir)) >= count)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        kept = committed(run_dir)

    assert start(spec).wait(timeout=200) == 0
    assert {name: time for name, time in committed(run_dir).items() if name in kept} == kept
    good, bad = (
        pq.read_table(run_dir / name).to_pylist() for name in ("predictions", "quarantine")
    )
    names = sorted(Path(row["key"]).name for row in [*good, *bad])
    assert names == [f"{number:03}.jpg" for number in range(512)]
    assert {row["prediction"] for row in good} == {"daisy"}
    assert {row["reason"] for row in bad} == {"the image is empty"}
    alike: dict[int, dict[str, Any]] = {}
    for row in good:
        first = alike.setdefault(int(Path(row["key"]).stem) % 2, row)
        assert row["labels"] == first["labels"]
        assert np.allclose(row["probabilities"], first["probabilities"], rtol=0, atol=1e-6)


def committed(run_dir: Path) -> dict[str, int]:
    """The entries of the parts that are done, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in run_dir.glob("commits/*/0*.json")}
