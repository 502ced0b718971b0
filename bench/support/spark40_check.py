#!/usr/bin/env python3
"""Run the MNIST pipeline on Spark 4.0 by plain spark-submit, each job as README shows it.

    .venv/jobs/bin/python bench/support/spark40_check.py

Prints what each job made; exits with 1 where one fails. `.venv/spark40` is made first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv" / "spark40"


def main() -> int:
    """Run the four jobs; answer with the exit code."""
    made = subprocess.run([sys.executable, str(ROOT / "bench/support/spark40_env.py")], check=False)
    if made.returncode:
        return made.returncode
    with tempfile.TemporaryDirectory(prefix="trainyard-spark40-") as home:
        data, model = f"--dataset={home}/prepare/data", "--model=models:/digits@challenger"
        features = ["--schema=mnist", "--features=pixels", "--label=digit", "--key=id"]
        training = ["--epochs=5", "--model-name=digits", "--batch-size=64"]
        for job, arguments in (
            ("prepare", ["--source=sample:mnist", *features]),
            ("train_horovod", [data, *training]),
            ("evaluate", [data, model]),
            ("predict", [f"--source={home}/prepare/data", "--split=test", model]),
        ):
            began = time.monotonic()
            result = submit(Path(home), job, arguments)
            if result is None:
                return 1
            told = {name: result[name] for name in ("rows", "metrics") if name in result}
            print(f"{job}: {time.monotonic() - began:.0f} s, {json.dumps(told)[:300]}", flush=True)
    return 0


def submit(home: Path, job: str, arguments: list[str]) -> dict[str, Any] | None:
    """Run one job; its result, or None where it failed, with the end of its output printed."""
    run_dir = home / job.removesuffix("_horovod")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK"))}
    environment |= {
        "PYSPARK_PYTHON": str(HOME / "bin/python"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.db",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
    }
    command = [str(HOME / "bin/spark-submit"), "--master=local[2]", f"{ROOT}/jobs/{job}.py"]
    done = subprocess.run(
        [*command, f"--run-dir={run_dir}", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"{job} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return None
    result: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return result


if __name__ == "__main__":
    sys.exit(main())
