#!/usr/bin/env python3
"""A deferred stage on a standalone cluster: its overhead over client mode, and how fast it ends.

    python bench/cluster_mode.py [ROUNDS]

A master, two workers and Airflow's services are started. ROUNDS times the same job runs in client
mode and in cluster mode on the same master; then a training on two executors is marked as failed
ROUNDS times, and the time is taken until no process of it is left.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from airflow_overhead import moment

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "jobs")]

from services.api import Api  # noqa: E402 - lies beside scripts/
from services.installation import Installation  # noqa: E402
from services.testbed import Testbed, wait_for  # noqa: E402

OVERHEAD_BAR = 8.0
KILL_BAR = 10.0


def main(rounds: int) -> int:
    """Measure both, and print whether the bars hold."""
    with (
        tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder,
        Testbed(Path(folder), ROOT / "bench" / "dags") as testbed,
    ):
        wait_for(lambda: len(testbed.api.get("dags")["dags"]) == 2, 120)
        datasets, extra = overhead(testbed.api, rounds)
        slowest = kills(testbed, datasets[-1], rounds)
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0 if extra <= OVERHEAD_BAR and slowest <= KILL_BAR else 1


def overhead(api: Api, rounds: int) -> tuple[list[str], float]:
    """Run the same job in both modes; the datasets that it made, and the median difference."""
    print("task        client mode   cluster mode   difference")
    datasets, differences = [], []
    for _ in range(rounds):
        run_id = trigger(api, "both_modes", {})
        path = ("dags", "both_modes", "dagRuns", run_id)
        wait_for(partial(is_in, api, path, "success", "failed"), 300)
        tasks = api.get(*path, "taskInstances")["task_instances"]
        took = {t["task_id"]: moment(t["end_date"]) - moment(t["start_date"]) for t in tasks}
        entry = (*path, "taskInstances", "cluster", "xcomEntries", "return_value")
        value = api.get(*entry, deserialize="true")["value"]
        result: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
        datasets.append(result["outputs"]["dataset"])
        differences.append(took["cluster"] - took["client"])
        print(
            f"prepare  {took['client']:12.1f} s {took['cluster']:12.1f} s {differences[-1]:10.1f} s"
        )
    median = statistics.median(differences)
    print(f"median difference {median:.1f} s (bar: {OVERHEAD_BAR:g} s)")
    return datasets, median


def kills(testbed: Testbed, dataset: str, rounds: int) -> float:
    """Mark a training as failed, again and again; the longest time until it was gone."""
    api, cluster = testbed.api, testbed.cluster
    times = []
    for number in range(rounds):
        run_id = trigger(api, "endless", {"dataset": dataset})
        task = ("dags", "endless", "dagRuns", run_id, "taskInstances", "train")
        wait_for(partial(trains, api, task, testbed.place, number + 1), 300)
        count = len(cluster.jobs())
        began = time.monotonic()
        api.patch(*task, body={"new_state": "failed"})
        wait_for(lambda: not cluster.jobs(), 60)
        times.append(time.monotonic() - began)
        print(f"marked as failed: {count} processes were gone after {times[-1]:.1f} s")
    print(f"slowest {max(times):.1f} s (bar: {KILL_BAR:g} s)")
    return max(times)


def trains(api: Api, task: tuple[str, ...], place: Installation, count: int) -> bool:
    """Whether a task waits for its training, which is the `count`-th that has begun."""
    events = place.home.glob("store/endless/*/train/g*/events/*rank0*")
    return is_in(api, task, "deferred") and len({path.parent for path in events}) >= count


def is_in(api: Api, path: tuple[str, ...], *states: str) -> bool:
    """Whether a run or a task is in one of some states; SystemExit if it failed instead."""
    state = api.get(*path)["state"]
    if state == "failed" and state not in states:
        raise SystemExit(f"{path[-1]} has failed")
    return state in states


def trigger(api: Api, dag_id: str, conf: dict[str, Any]) -> str:
    """Start a run."""
    body = {"logical_date": None, "conf": conf}
    return str(api.post("dags", dag_id, "dagRuns", body=body)["dag_run_id"])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
