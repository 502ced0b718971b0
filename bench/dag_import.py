#!/usr/bin/env python3
"""What importing all DAG files costs over importing airflow.sdk: the DAG processor pays it each time.

    python bench/dag_import.py [REPEATS]

Fresh interpreters of Airflow's environment take turns, so that the machine's mood hits both alike.
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

SDK = "from airflow.sdk import DAG, Asset, BaseHook, BaseOperator, Connection, Param, chain, conf"
DAGS = "; ".join(
    ["import runpy", SDK, *(f"runpy.run_path({str(f)!r})" for f in sorted(ROOT.glob("dags/*.py")))]
)


def seconds(statement: str) -> float:
    """Seconds that a fresh interpreter takes for a statement, its own start not counted."""
    program = (
        "import time; began = time.perf_counter()\n"
        f"{statement}\n"
        "print(time.perf_counter() - began)"
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
    return float(answer.stdout.splitlines()[-1])


def main() -> int:
    """Print the medians and whether the bar holds."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    seconds(DAGS)  # compiles and warms the disk's cache
    pairs = [(seconds(SDK), seconds(DAGS)) for _ in range(repeats)]
    sdk, dags = (statistics.median(column) for column in zip(*pairs, strict=True))
    over = statistics.median(with_dags - alone for alone, with_dags in pairs)
    print(f"airflow.sdk            {sdk:.3f} s  (median of {repeats})")
    print(f"airflow.sdk and DAGs   {dags:.3f} s")
    print(f"DAGs over airflow.sdk  {over:.3f} s  (median of the pairs; bar: {BAR} s)")
    return 0 if over <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
