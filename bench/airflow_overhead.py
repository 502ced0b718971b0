#!/usr/bin/env python3
"""What Airflow adds to a stage: from task start to spark-submit, from the manifest to task end.

    python bench/airflow_overhead.py

Runs the DAG once through Airflow's own services in an installation of its own, and reads what they
and the jobs recorded: the task's start and end, when spark-submit was started (by a wrapper that
notes the time), and when the job wrote its manifest.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "jobs")]

from services.api import Api, ApiError  # noqa: E402 - lies beside scripts/
from services.installation import HOST, USER, Installation  # noqa: E402

DAG = "mnist_horovod"
RUN = "bench"
BAR = 3.0

# The wrapper has one of the names that the provider allows, so that the connection can choose it.
WRAPPER = """#!/bin/sh
echo "$(date +%s.%N) $*" >> {times}
exec spark-submit "$@"
"""


def main() -> int:
    """Run, and print a line for each stage and whether the bar holds."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        home = Path(folder)
        place = Installation(home=home / "installation", port=free_port())
        environment = prepared_environment(home, place)
        local("up", environment)
        try:
            api = Api(place.url, USER, place.password())
            run(api)
            tasks = api.get("dags", DAG, "dagRuns", RUN, "taskInstances")["task_instances"]
            return report(tasks, submissions(home), manifests(place.home / "store"))
        finally:
            local("down", environment)


def prepared_environment(home: Path, place: Installation) -> dict[str, str]:
    """The environment of the installation, with spark-submit under the wrapper's name."""
    wrapper = home / "bin" / "spark2-submit"
    wrapper.parent.mkdir()
    wrapper.write_text(WRAPPER.format(times=home / "times"))
    wrapper.chmod(0o755)
    connection = {"conn_type": "spark", "host": "local[2]", "extra": {"spark-binary": wrapper.name}}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "MLFLOW"))}
    return {
        **kept,
        "PATH": f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}",
        "TRAINYARD_HOME": str(place.home),
        "PORT": str(place.port),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }


def local(command: str, environment: dict[str, str]) -> None:
    """Start or end the services."""
    script = str(ROOT / "scripts" / "local.py")
    subprocess.run([sys.executable, script, command], env=environment, check=True, timeout=300)


def run(api: Api) -> None:
    """Trigger a short run as soon as the DAG is known, and wait for its success."""
    deadline = time.monotonic() + 120
    while True:
        try:
            api.get("dags", DAG)
            break
        except ApiError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
    conf = {"epochs": 2, "minimum_accuracy": 0.1}
    body = {"dag_run_id": RUN, "logical_date": None, "conf": conf}
    api.post("dags", DAG, "dagRuns", body=body)
    while (state := api.get("dags", DAG, "dagRuns", RUN)["state"]) in ("queued", "running"):
        time.sleep(2)
    if state != "success":
        raise SystemExit(f"the run ended as {state}")


def submissions(home: Path) -> dict[str, float]:
    """When spark-submit was started for each task."""
    times = {}
    for line in (home / "times").read_text().splitlines():
        moment, words = line.split(" ", 1)
        task = words.split("--name ")[1].split()[0].removeprefix(f"{DAG}.")
        times[task] = float(moment)
    return times


def manifests(store: Path) -> dict[str, float]:
    """When each task's job wrote its manifest."""
    found = {}
    for path in store.glob(f"{DAG}/*/*/g*/result.json"):
        found[path.parent.parent.name] = float(json.loads(path.read_text())["finished"])
    return found


def report(
    tasks: list[dict[str, Any]], submitted: dict[str, float], finished: dict[str, float]
) -> int:
    """Print what each stage cost Airflow; 1 if one cost more than the bar."""
    worst = 0.0
    print("stage      start to submit  manifest to end      sum    whole task")
    for task in sorted(tasks, key=lambda task: task["start_date"]):
        name, begun, ended = task["task_id"], moment(task["start_date"]), moment(task["end_date"])
        if name not in submitted:
            print(f"{name:9}  {'no Spark job':>33}  {ended - begun:>14.2f} s")
            continue
        before, after = submitted[name] - begun, ended - finished[name]
        worst = max(worst, before + after)
        sums = f"{before + after:>6.2f} s  {ended - begun:>8.2f} s"
        print(f"{name:9}  {before:>13.2f} s  {after:>13.2f} s  {sums}")
    print(f"worst stage {worst:.2f} s (bar: {BAR:g} s); load {os.getloadavg()[0]:.1f}")
    return 0 if worst <= BAR else 1


def moment(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
