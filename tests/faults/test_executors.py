"""Ranks on executors of their own: each has a GPU, and one that loses its executor starts again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_datasets import write_dataset
from tests.faults.conftest import environment, submission

HERE = Path(__file__).parent

# Each of the two workers asks once, and gets the next number.
DISCOVERY = """#!/bin/sh
number=0
while ! mkdir "$(dirname "$0")/gpu-$number"; do number=$((number + 1)); done
printf '{"name": "gpu", "addresses": ["%s"]}' $number
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("executors")
    features = np.random.default_rng(0).normal(size=(240, 4)).astype(np.float32)
    values = features @ np.array([1.0, -2.0, 0.5, 3.0])
    splits = {"train": (features[:200], values[:200]), "validation": (features[200:], values[200:])}
    dataset = write_dataset(home / "data", splits, classes=0)
    script = home / "discovery.sh"
    script.write_text(DISCOVERY)
    script.chmod(0o755)
    conf = {
        "spark.worker.resource.gpu.amount": "1",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "1",
        "spark.task.resource.gpu.amount": "1",
        "spark.ui.enabled": "false",
    }
    program = HERE / "two_executors.py"
    command = submission(
        program, dataset.directory, str(home), master="local-cluster[2,1,1024]", **conf
    )
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
    return dict(json.loads((home / "found.json").read_text()))


@pytest.mark.timeout(300)
def test_each_rank_has_a_gpu_of_its_own(found: dict[str, Any]) -> None:
    gpus = found["gpus"]
    assert [gpu["rank"] for gpu in gpus] == [0, 1]
    assert sorted(gpu["address"] for gpu in gpus) == ["0", "1"]
    assert all(gpu["device"] == f"cuda:{gpu['address']}" for gpu in gpus)
    assert len({gpu["executor"] for gpu in gpus}) == 2


@pytest.mark.timeout(300)
def test_a_lost_executor_ends_the_same(found: dict[str, Any]) -> None:
    lost, undisturbed = found["lost"], found["undisturbed"]
    assert lost["resumed"] == 1
    assert lost["history"] == undisturbed["history"]
    assert lost["weights"] == undisturbed["weights"]
    (relaunch,) = [note for note in lost["notes"] if "relaunch 1 of 1" in note]
    assert "The ranks start again from the last checkpoint" in relaunch
