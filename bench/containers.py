#!/usr/bin/env python3
"""The pipelines in containers beside the same ones in local mode, and engines on 1 and 2 workers.

    make compose-up && python bench/containers.py

A pipeline runs in local mode (an installation of its own), then in the containers; then each engine
trains in the containers on one worker and on two. Prints seconds of wall time. Datasets that
earlier runs prepared in the containers are forgotten first, so that both sides prepare their own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "jobs")]

from airflow_overhead import free_port, local, moment  # noqa: E402 - lies beside this file
from tests.e2e.runs import Run, dag_ids, wait_until  # noqa: E402 - lies beside the tests

from services.api import Api  # noqa: E402 - lies beside scripts/
from services.composed import Composed  # noqa: E402
from services.installation import USER, Installation  # noqa: E402

PIPELINES: dict[str, dict[str, Any]] = {
    "mnist_horovod": {"epochs": 30, "ranks": 2, "minimum_accuracy": 0.5},
    "flight_delays_xgboost": {"rounds": 100, "num_workers": 2, "minimum_roc_auc": 0.5},
    "image_labels": {},
}
WORKERS = {"mnist_horovod": "ranks", "flight_delays_xgboost": "num_workers"}
"""The setting of each engine's DAG that says on how many slots it trains."""

SECONDS = 1500


def main() -> int:
    """Run everything once and print the tables."""
    composed = Composed.running()
    composed.exec("airflow-scheduler", "rm", "-rf", "/store/datasets")
    print(f"{'pipeline':24}{'local':>8}{'containers':>12}{'ratio':>8}")
    local_took = {}
    with local_airflow() as api:
        for dag, given in PIPELINES.items():
            local_took[dag] = wall(Run.trigger(api, dag, **given))
    runs = {}
    for dag, given in PIPELINES.items():
        runs[dag] = Run.trigger(composed.api, dag, **given)
        took = wall(runs[dag])
        ratio = took / local_took[dag]
        print(f"{dag:24}{local_took[dag]:8.0f}{took:12.0f}{ratio:8.2f}", flush=True)
    print(f"\n{'train, in containers':24}{'1 worker':>8}{'2 workers':>12}{'ratio':>8}")
    for dag, setting in WORKERS.items():
        alone = Run.trigger(composed.api, dag, **PIPELINES[dag] | {setting: 1})
        wall(alone)
        one, two = seconds_of(alone, "train"), seconds_of(runs[dag], "train")
        print(f"{dag:24}{one:8.0f}{two:12.0f}{two / one:8.2f}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0


@contextmanager
def local_airflow() -> Iterator[Api]:
    """An installation of its own in local mode."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        place = Installation(home=Path(folder) / "installation", port=free_port())
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "MLFLOW"))}
        kept |= {"TRAINYARD_HOME": str(place.home), "PORT": str(place.port)}
        local("up", kept)
        try:
            api = Api(place.url, USER, place.password())
            wait_until(lambda: set(PIPELINES) <= set(dag_ids(api)), 120)
            yield api
        finally:
            local("down", kept)


def wall(run: Run) -> float:
    """Seconds that a run takes, which must end well."""
    if run.wait(SECONDS) != "success":
        raise RuntimeError(f"{run.dag_id} {run.run_id} failed")
    told = run.api.get(*run.path)
    return moment(told["end_date"]) - moment(told["start_date"])


def seconds_of(run: Run, task_id: str) -> float:
    """Seconds that a task of a run took, which has ended."""
    task = run.tasks()[task_id]
    return moment(task["end_date"]) - moment(task["start_date"])


if __name__ == "__main__":
    sys.exit(main())
