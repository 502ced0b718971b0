"""The helpers beside the jobs' tests and the scripts, and how spark-submit is called here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOB_TESTS = ROOT / "tests" / "jobs"
BIN = Path(sys.executable).parent

sys.path[:0] = [str(JOB_TESTS), str(ROOT / "scripts")]


def submission(program: Path, *arguments: str, master: str, **conf: str) -> list[str]:
    """The command that submits a program; the tests' networks travel with it."""
    networks = ",".join(str(JOB_TESTS / name) for name in ("dying_networks.py", "tiny_models.py"))
    settings = [f"--conf={name}={value}" for name, value in conf.items()]
    submit = [str(BIN / "spark-submit"), "--master", master, "--py-files", networks]
    return [*submit, *settings, str(program), *arguments]


def environment(**more: str) -> dict[str, str]:
    """What a submission needs of the environment."""
    modules = f"{ROOT}/jobs:{JOB_TESTS}"
    path = f"{BIN}:{os.environ['PATH']}"
    quiet = {"PATH": path, "PYTHONPATH": modules, "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **quiet, "OMP_NUM_THREADS": "1", **more}
