#!/usr/bin/env python3
"""Make the project's environments: `.venv/tools`, `.venv/airflow` and `.venv/jobs`.

    python3 scripts/setup.py              # all three
    python3 scripts/setup.py airflow      # what the DAG tests need
    python3 scripts/setup.py ui           # what the tests in a browser need; not one of the three
    python3 scripts/setup.py --check      # only look for what this machine must have

A complete environment is left alone; one that was interrupted, or whose pins have changed since, is
made anew. TORCH_BACKEND chooses the PyTorch build: cpu (the default), cuda, or a name that uv's
--torch-backend knows, such as cu130. Exits with 2 where the machine lacks something.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import IO

from environments import horovod, needs, recipes, ui
from environments.steps import StepFailedError, Steps, alone

RECIPES = Path(recipes.__file__)
INPUTS = {
    "tools": [RECIPES, recipes.TOOLS_PINS],
    "airflow": [RECIPES, recipes.AIRFLOW_LOCK, recipes.TESTS_LOCK],
    "jobs": [RECIPES, recipes.JOBS_LOCK, recipes.TESTS_LOCK, Path(horovod.__file__)],
    "ui": [Path(ui.__file__), ui.UI_LOCK],
}
"""The files that an environment is made from, in the order in which they are made."""
ON_DEMAND = {"ui"}
"""Environments that are made where they are named only."""
CHOICE = recipes.VENVS / "torch-backend"
"""Keeps the last TORCH_BACKEND, so that a later run without the variable changes nothing."""
TORCH_BACKENDS = re.compile(r"cpu|cuda|auto|xpu|cu\d{2,3}|rocm\d+(\.\d+)*")


def main() -> int:
    """Check, then make what is not complete; answer with the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="tools|airflow|jobs|ui", help="default: three")
    parser.add_argument("--check", action="store_true", help="only check what this machine has")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(INPUTS):
        parser.error(f"no such environment: {', '.join(sorted(unknown))}")
    backend = os.environ.get("TORCH_BACKEND") or (CHOICE.read_text() if CHOICE.exists() else "cpu")
    if not TORCH_BACKENDS.fullmatch(backend):
        parser.error(
            f"TORCH_BACKEND={backend} names no PyTorch build; use cpu, cuda, auto, xpu or a"
            " version such as cu130 or rocm6.4"
        )

    # The tools make the others.
    wanted = {"tools", *(arguments.names or set(INPUTS) - ON_DEMAND)}
    names = [name for name in INPUTS if name in wanted]
    if arguments.check:
        return 0 if check(names, backend, everything=True) else 2
    if all(complete(name, backend) for name in names):
        return 0
    try:
        return renew(names, backend)
    except StepFailedError as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; run it again to go on", file=sys.stderr)
        return 130


def renew(names: list[str], backend: str) -> int:
    """Make those of `names` that are not complete, alone; answer with the exit code."""
    with alone(recipes.VENVS / ".lock") as lock:
        missing = [name for name in names if not complete(name, backend)]
        if not missing:
            return 0
        python = check(missing, backend)
        if python is None:
            return 2
        make(missing, backend, python, lock)
    return 0


def check(names: list[str], backend: str, *, everything: bool = False) -> str | None:
    """Print what making `names` lacks, or `everything` it needs; answer with the Python to use."""
    python = needs.find_python(sys.executable)
    found = needs.check(names, recipes.ROOT, python, backend)
    return python.executable if needs.report(found, everything) and python else None


def make(names: list[str], backend: str, python: str, lock: IO[str]) -> None:
    """Make the environments `names` from nothing, one after the other."""
    log = recipes.ROOT / f"var/log/setup/{time.strftime('%Y%m%d-%H%M%S')}.log"
    steps = Steps(log, lock)
    for name in names:
        stamp(name).unlink(missing_ok=True)
        if (recipes.VENVS / name).exists():
            shutil.rmtree(recipes.VENVS / name)
        if name == "tools":
            recipes.make_tools(python, steps)
        elif name == "airflow":
            recipes.make_airflow(python, steps)
        elif name == "ui":
            ui.make_ui(python, steps)
        else:
            CHOICE.write_text(backend)
            recipes.make_jobs(python, backend, steps)
        stamp(name).write_text(fingerprint(name, backend))
    steps.total()


def complete(name: str, backend: str) -> bool:
    """Answer whether the environment `name` was made to its end from today's inputs."""
    interpreter = recipes.VENVS / name / "bin/python"
    try:
        made_from = stamp(name).read_text()
    except FileNotFoundError:
        return False
    return made_from == fingerprint(name, backend) and interpreter.exists()


def stamp(name: str) -> Path:
    """Answer with the file that is written last, when the environment `name` is complete."""
    return recipes.VENVS / name / "complete"


def fingerprint(name: str, backend: str) -> str:
    """Answer with a digest of all that decides what the environment `name` holds.

    The project's folder counts, because an environment that was moved or copied does not work.
    """
    digest = hashlib.sha256(str(recipes.ROOT).encode())
    if name == "jobs":
        digest.update(backend.encode())
    for path in INPUTS[name]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
