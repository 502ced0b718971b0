#!/usr/bin/env python3
"""What 500 waiting tasks cost a triggerer: 500 triggers in one event loop against a fake master.

    python bench/triggers.py [TRIGGERS]

Twice: with drivers that are young, polled every 1.5 s, and with drivers that have run for an hour,
polled every 15 s. For each: the share of one core that the triggers take, and how long after a
driver's end its trigger fires. Airflow's environment runs it; no Airflow service does.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from support.fake_rest import end_of

ROOT = Path(__file__).resolve().parents[1]
AIRFLOW = ROOT / ".venv/airflow/bin/python"


def main(count: int) -> None:
    """Run both, and print a line for each."""
    print(f"{count} triggers in one event loop")
    print("drivers    polls every   share of a core   fires after the end: median, 99 %, most")
    measure(count, "young", age=0.0, wait=10.0, spread=20.0)
    measure(count, "an hour old", age=3600.0, wait=20.0, spread=20.0)


def measure(count: int, name: str, *, age: float, wait: float, spread: float) -> None:
    """Let every driver end between `wait` and `wait + spread` seconds from now."""
    first = time.time() + wait
    last = first + spread
    server = subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "bench/support/fake_rest.py"),
            str(count),
            f"{first}",
            f"{last}",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        extra = {"deploy-mode": "cluster", "rest-port": port}
        connection = {"conn_type": "spark", "host": "spark://127.0.0.1:7077", "extra": extra}
        os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(connection)
        share, fired = asyncio.run(run(count, age, first))
    finally:
        server.terminate()
        server.wait()
    delays = sorted(fired[n] - end_of(n, count, first, last) for n in range(count))
    every = importlib.import_module("trainyard_airflow.waiting").pace
    seconds = statistics.mean(every(age + wait) for _ in range(1000))
    print(
        f"{name:11}{seconds:9.1f} s {share:16.1%}   {statistics.median(delays):26.2f} s,"
        f" {delays[int(count * 0.99)]:.2f} s, {delays[-1]:.2f} s"
    )


async def run(count: int, age: float, first: float) -> tuple[float, dict[int, float]]:
    """Run all triggers; the share of a core before the first driver ends, and when each fired."""
    trigger_class = importlib.import_module("trainyard_airflow.triggers.spark_driver")
    fired: dict[int, float] = {}

    async def follow(number: int, folder: str) -> None:
        driver: dict[str, Any] = {
            "submission": f"driver-{number}",
            "ticket": 1,
            "earlier_claim": 0,
            "submitted": time.time() - age,
            "run_dir": f"{folder}/{number}",
            "generation": 0,
            "conn_id": "spark_default",
            "dag_id": "d",
            "run_id": "r",
            "task_id": "t",
            "map_index": number,
        }
        trigger = trigger_class.SparkDriverTrigger(driver=driver, deadline=None)
        async for event in trigger.run():
            assert event.payload["state"] == "FINISHED"
            fired[number] = time.time()

    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        followed = [asyncio.create_task(follow(n, folder)) for n in range(count)]
        await asyncio.sleep(2.0)  # the connections are made once
        began, used = time.monotonic(), time.process_time()
        await asyncio.sleep(max(1.0, first - time.time()))
        share = (time.process_time() - used) / (time.monotonic() - began)
        await asyncio.gather(*followed)
    return share, fired


if __name__ == "__main__":
    if importlib.util.find_spec("airflow") is None:
        path = os.pathsep.join([str(ROOT / "jobs"), str(ROOT / "plugins")])
        # Nothing is read from or written into an installation.
        with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as home:
            environment = {**os.environ, "PYTHONPATH": path, "AIRFLOW_HOME": home}
            command = [str(AIRFLOW), __file__, *sys.argv[1:]]
            sys.exit(subprocess.run(command, env=environment).returncode)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
