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
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from airflow_overhead import free_port, moment

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "jobs")]

from services.api import Api  # noqa: E402 - lies beside scripts/
from services.installation import HOST, USER, Installation  # noqa: E402
from services.standalone import Standalone  # noqa: E402

OVERHEAD_BAR = 8.0
KILL_BAR = 10.0


def main(rounds: int) -> int:
    """Measure both, and print whether the bars hold."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        home = Path(folder)
        place = Installation(home=home / "installation", port=free_port())
        with Standalone(home / "cluster") as cluster:
            environment = airflow_environment(place, cluster)
            services("up", environment)
            try:
                api = Api(place.url, USER, place.password())
                wait_until(lambda: len(api.get("dags")["dags"]) == 2, 120)
                datasets, extra = overhead(api, rounds)
                slowest = kills(api, cluster, place, datasets[-1], rounds)
            finally:
                services("down", environment)
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0 if extra <= OVERHEAD_BAR and slowest <= KILL_BAR else 1


def airflow_environment(place: Installation, cluster: Standalone) -> dict[str, str]:
    """The installation's environment, with a connection for each mode."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "MLFLOW"))}
    client = {"conn_type": "spark", "host": cluster.url}
    return {
        **kept,
        "TRAINYARD_HOME": str(place.home),
        "PORT": str(place.port),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "bench" / "dags"),
        "AIRFLOW_CONN_SPARK_CLIENT": json.dumps(client),
        "AIRFLOW_CONN_SPARK_CLUSTER": cluster.connection(),
        "SPARK_LOCAL_IP": HOST,
    }


def services(command: str, environment: dict[str, str]) -> None:
    """Start or end Airflow's services."""
    script = str(ROOT / "scripts" / "local.py")
    subprocess.run([sys.executable, script, command], env=environment, check=True, timeout=300)


def overhead(api: Api, rounds: int) -> tuple[list[str], float]:
    """Run the same job in both modes; the datasets that it made, and the median difference."""
    print("task        client mode   cluster mode   difference")
    datasets, differences = [], []
    for _ in range(rounds):
        run_id = trigger(api, "both_modes", {})
        path = ("dags", "both_modes", "dagRuns", run_id)
        wait_until(partial(is_in, api, path, "success", "failed"), 300)
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


def kills(api: Api, cluster: Standalone, place: Installation, dataset: str, rounds: int) -> float:
    """Mark a training as failed, again and again; the longest time until it was gone."""
    times = []
    for number in range(rounds):
        run_id = trigger(api, "endless", {"dataset": dataset})
        task = ("dags", "endless", "dagRuns", run_id, "taskInstances", "train")
        wait_until(partial(trains, api, task, place, number + 1), 300)
        count = len(cluster.jobs())
        began = time.monotonic()
        api.patch(*task, body={"new_state": "failed"})
        wait_until(lambda: not cluster.jobs(), 60)
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


def wait_until(condition: Callable[[], object], seconds: float) -> None:
    """Wait for a condition, looking every 0.1 s."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
