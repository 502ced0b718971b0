#!/usr/bin/env python3
"""What the pages cost: a run of 10,000 epochs and 100,000 events, and the plugin in the API server.

    python bench/ui.py [--epochs N]

The run is written by the jobs' own writer, a segment a second of training. Answers are timed in the
process that gives them, the first one with nothing kept, and their bytes as gzip sends them. Needs
the environment of `make test-ui`, whose Chromium says when the page can be used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv" / "ui" / "bin" / "python"


def main() -> int:
    """Run the program that measures in the environment that can."""
    if not PYTHON.exists():
        print("not measured: python3 scripts/setup.py ui makes the environment that this needs")
        return 0
    path = os.pathsep.join(str(ROOT / part) for part in ("", "jobs", "plugins"))
    program = ROOT / "tests" / "ui" / "programs" / "measured.py"
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-ui-") as home:
        environment = {**os.environ, "PYTHONPATH": path, "AIRFLOW_HOME": home}
        command = [str(PYTHON), str(program), *sys.argv[1:]]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
