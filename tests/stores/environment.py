#!/usr/bin/env python3
"""Make what the tests here need: `.venv/stores`, the jobs' environment and more, and Azurite."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv" / "stores"
AZURITE = ROOT / ".cache" / "azurite"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def main() -> int:
    """Make them; what is complete is left alone."""
    jobs = sysconfig.get_path("purelib")
    made_from = REQUIREMENTS.read_bytes() + jobs.encode()
    done, wanted = HOME / "complete", hashlib.sha256(made_from).hexdigest()
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(HOME)], check=True)
        [packages] = (HOME / "lib").glob("python*/site-packages")
        (packages / "jobs.pth").write_text(f"{jobs}\n")
        pip = [str(HOME / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
        done.write_text(wanted)
    if not (AZURITE / "node_modules" / "azurite").exists():
        npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(AZURITE)]
        subprocess.run([*npm, "azurite@3"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
