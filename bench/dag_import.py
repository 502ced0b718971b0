#!/usr/bin/env python3
"""What importing all DAG files costs over importing airflow.sdk: each parse and each task pays it.

    python bench/dag_import.py [REPEATS]

Fresh interpreters of Airflow's environment take turns, so that other work on the machine hits both
alike. The bar is on processor time, which an import is made of: wall time also counts that work.
The baseline imports the names of airflow.sdk that any DAG needs, since airflow.sdk itself is lazy.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv" / "airflow" / "bin" / "python"
BAR = 0.3

Times = tuple[float, float]
"""Wall and processor seconds."""

SDK = "from airflow.sdk import DAG, Asset, BaseHook, BaseOperator, Connection, Param, chain, conf"
PROVIDER = f"{SDK}; import airflow.providers.apache.spark.operators.spark_submit"
DAGS = "; ".join(
    ["import runpy", SDK, *(f"runpy.run_path({str(f)!r})" for f in sorted(ROOT.glob("dags/*.py")))]
)


def seconds(statement: str) -> Times:
    """Wall and processor seconds of a statement in a fresh interpreter, its start not counted."""
    program = (
        "import time; began, worked = time.perf_counter(), time.process_time()\n"
        f"{statement}\n"
        "print(time.perf_counter() - began, time.process_time() - worked)"
    )
    path = f"{ROOT / 'jobs'}{os.pathsep}{ROOT / 'plugins'}"
    answer = subprocess.run(
        [PYTHON, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    wall, processor = map(float, answer.stdout.splitlines()[-1].split())
    return wall, processor


def main() -> int:
    """Print the medians and whether the bar holds."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    seconds(DAGS)  # compiles and warms the disk's cache
    alone, provider, with_dags = [], [], []
    for _ in range(repeats):
        alone.append(seconds(SDK))
        provider.append(seconds(PROVIDER))
        with_dags.append(seconds(DAGS))
    print(f"medians of {repeats:<3}               wall   processor")
    show("airflow.sdk", alone)
    show("the provider over it", over(alone, provider))
    cost = show("the DAGs over it", over(alone, with_dags))
    verdict = "met" if cost <= BAR else "MISSED"
    print(f"bar of {BAR} s processor time {verdict}; load {os.getloadavg()[0]:.1f}")
    return 0 if cost <= BAR else 1


def over(less: list[Times], more: list[Times]) -> list[Times]:
    """How much more each of a pair took."""
    return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(less, more, strict=True)]


def show(name: str, times: list[Times]) -> float:
    """Print the medians of wall and processor times and return the latter."""
    wall: float = statistics.median(pair[0] for pair in times)
    processor: float = statistics.median(pair[1] for pair in times)
    print(f"{name:25} {wall:7.3f} s {processor:7.3f} s")
    return processor


if __name__ == "__main__":
    sys.exit(main())
