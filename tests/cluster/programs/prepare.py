"""The program of a prepare job that looks at what a driver and its executors were given."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from trainyard.job import Run, run_job
from trainyard.session import spark_session
from trainyard.specs import Prepare


def work(spec: Prepare, run: Run) -> dict[str, Any]:
    """Ask an executor, or stay, and return a result of the agreed form."""
    if spec.source == "stay":
        run.events.note("staying")
        run.events.close()
        while True:
            Path(spec.run_dir, "staying").touch()
            time.sleep(0.5)
    with spark_session("probe") as spark:
        conf = spark.sparkContext.getConf()
        seen = spark.sparkContext.parallelize([0], 1).map(look).collect()
        return {
            "outputs": {"dataset": json.dumps(seen[0])},
            "rows": {"in": 0},
            "fingerprints": {"conf": conf.get("spark.mine.secret") or ""},
        }


def look(_: int) -> dict[str, str]:
    """What an executor's environment holds, and every command line of this machine."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            commands.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return {"token": os.environ.get("API_TOKEN", ""), "commands": "\n".join(commands)}


if __name__ == "__main__":
    sys.exit(run_job(Prepare, work))
