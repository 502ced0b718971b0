#!/usr/bin/env python3
"""Make `.venv/estimator`, the environment of the peer in bench/launch.py: Horovod's TorchEstimator.

    python3.11 bench/support/estimator_env.py

Takes Horovod from the wheel that `make setup` built for the same torch.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv" / "estimator"
PETASTORM = "petastorm==0.13.1"


def main() -> int:
    """Make it; an environment that is complete is left alone."""
    done = HOME / "complete"
    if done.exists():
        return 0
    wheels = sorted((ROOT / ".cache" / "wheels").glob("**/horovod-0.28.1-*.whl"))
    if not wheels:
        print("there is no Horovod wheel: run `make setup` first", file=sys.stderr)
        return 1
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(HOME)], check=True)
    pip = [str(HOME / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(ROOT / "bench" / "requirements-estimator.txt")], check=True)
    subprocess.run([*pip, "--no-deps", PETASTORM, str(wheels[-1])], check=True)
    done.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
