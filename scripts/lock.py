#!/usr/bin/env python3
"""Renew the locks from their .in files; run as `make lock`, or `make lock UPGRADE=1`.

Without --upgrade a pin changes only where its .in file asks for it. A lock holds for every platform
and for Python 3.11 and later, with hashes, and begins with its .in file's opening comment.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".venv/tools/bin/uv"
AIRFLOW, JOBS, TESTS, UI = (
    ROOT / part / "requirements.txt" for part in (".", "jobs", "tests", "tests/ui")
)
UI_OVERRIDES = ROOT / "tests/ui/overrides.txt"
CUDA = re.compile(r"^((?:nvidia|cuda)-[\w.-]+|triton)==", re.MULTILINE)
"""The packages that only a CUDA build of PyTorch or XGBoost needs."""


def compile_lock(lock: Path, *options: str) -> None:
    """Resolve `lock` from the .in file beside it, with paths relative to the project."""
    target = lock.relative_to(ROOT)
    command = [str(UV), "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
    command += ["--python-version", "3.11", "--custom-compile-command", "make lock"]
    source = str(target.with_suffix(".in"))
    subprocess.run([*command, *options, "--output-file", str(target), source], cwd=ROOT, check=True)


def leave_out_cuda(lock: Path) -> None:
    """Resolve `lock` again, naming at its end the CUDA packages it leaves out."""
    names = CUDA.findall(lock.read_text())
    compile_lock(lock, *(f"--no-emit-package={name}" for name in names))


def introduce(lock: Path) -> None:
    """Put the .in file's opening comment on top of `lock`."""
    lines = lock.with_suffix(".in").read_text().splitlines(keepends=True)
    lock.write_text("".join(takewhile(str.strip, lines)) + "\n" + lock.read_text())


def main() -> None:
    """Write the locks; the tests' lock keeps to the versions of both environments."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--upgrade", action="store_true", help="take the newest allowed versions")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []

    compile_lock(AIRFLOW, *upgrade)
    compile_lock(JOBS, *upgrade)
    leave_out_cuda(JOBS)
    both = [f"--constraints={lock.relative_to(ROOT)}" for lock in (AIRFLOW, JOBS)]
    compile_lock(TESTS, *both, *upgrade)
    own = [f"--constraints={lock.relative_to(ROOT)}" for lock in (AIRFLOW, TESTS)]
    compile_lock(UI, *own, f"--override={UI_OVERRIDES.relative_to(ROOT)}", *upgrade)
    for lock in (AIRFLOW, JOBS, TESTS, UI):
        introduce(lock)
        print(f"{lock.relative_to(ROOT)}: {lock.read_text().count('==')} pins")


if __name__ == "__main__":
    main()
