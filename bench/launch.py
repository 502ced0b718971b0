#!/usr/bin/env python3
"""How long a training stage takes, from launch to the weights in hand.

    python bench/launch.py [--repeats N] [--rows N] [--skip-estimator]

Two ranks, 20,000 rows of 784, 2 epochs, each time in a fresh Spark session that is there before the
clock starts. Bars: the barrier launcher <= 0.7 of `horovod.spark.run` with the same training
function; the whole stage, model stored, <= 0.5 of Horovod's own TorchEstimator.fit. That peer lives
in an environment of its own: `python3.11 bench/support/estimator_env.py` makes it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from support.data import ROOT, repeated_digits
from support.process import in_process
from support.tables import bar, machine, ratio, show

SUPPORT = ROOT / "bench" / "support"
ESTIMATOR = ROOT / ".venv" / "estimator" / "bin" / "python"
SETTINGS = {"ranks": 2, "epochs": 2, "batch_size": 128}


def main() -> int:
    """Measure side by side; answer 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--skip-estimator", action="store_true")
    given = parser.parse_args()
    peer = not given.skip_estimator and ESTIMATOR.exists()
    if not peer:
        print("without TorchEstimator: make its environment by bench/support/estimator_env.py")
    print(f"two ranks, {given.rows} rows of 784, 2 epochs; {machine()}")
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        dataset = repeated_digits(Path(directory), given.rows).directory
        for _ in range(given.repeats):
            ours = stage(sys.executable, "stage.py", "barrier", dataset)
            measured.setdefault("barrier launcher", []).append(ours["launch"])
            theirs = stage(sys.executable, "stage.py", "spark-run", dataset)
            measured.setdefault("horovod.spark.run", []).append(theirs["launch"])
            measured.setdefault("whole stage", []).append(ours["stage"])
            if peer:
                fit = stage(str(ESTIMATOR), "estimator_fit.py", dataset)
                measured.setdefault("TorchEstimator.fit", []).append(fit["stage"])
    show("seconds", "s", measured)
    barrier, run, whole, *fits = measured.values()
    holds = bar("barrier / horovod.spark.run", ratio("launch", barrier, run), most=0.7)
    if peer:
        holds &= bar("stage / TorchEstimator.fit", ratio("stage", whole, fits[0]), most=0.5)
    return 0 if holds else 1


def stage(python: str, program: str, *arguments: str) -> dict[str, Any]:
    """Run one stage in a process of its own, and return what it measured."""
    path = f"{ROOT / 'jobs'}:{ROOT / 'bench'}"
    command = [python, str(SUPPORT / program), *arguments, json.dumps(SETTINGS)]
    env = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return dict(in_process(command, env, seconds=600))


if __name__ == "__main__":
    sys.exit(main())
