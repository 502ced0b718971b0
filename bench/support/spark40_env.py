#!/usr/bin/env python3
"""Make `.venv/spark40`: the jobs' environment with the PySpark of Spark 4.0 in place of its own.

    .venv/jobs/bin/python bench/support/spark40_env.py

All other packages are those of `.venv/jobs`, found by a path file after PySpark 4.0 and its Py4J.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv" / "spark40"
PINS = ("pyspark==4.0.5", "py4j==0.10.9.9")


def main() -> int:
    """Make it; an environment that is complete is left alone."""
    done = HOME / "complete"
    if done.exists():
        return 0
    python = HOME / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", HOME], check=True)
    uv = [str(ROOT / ".venv/tools/bin/uv"), "pip", "install", f"--python={python}", "--no-deps"]
    subprocess.run([*uv, *PINS], check=True)
    jobs = Path(sysconfig.get_path("purelib"))
    (packages,) = HOME.glob("lib/python3.*/site-packages")
    (packages / "jobs.pth").write_text(f"{jobs}\n")
    done.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
