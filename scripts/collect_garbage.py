#!/usr/bin/env python3
"""Remove what nothing needs any more from the local installation's store, as the nightly DAG does.

make gc                                  list what would go
make gc ARGS="--apply --keep-days 7"     remove it
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from services import installation
from services.installation import ROOT, Installation

sys.path.insert(0, str(ROOT / "jobs"))
from trainyard import retention
from trainyard.errors import JobError


def main() -> int:
    """Do what the command line says; answer with the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--keep-days", type=float, default=30.0)
    parser.add_argument("--keep-runs", type=int, default=50)
    parser.add_argument("--checkpoint-days", type=float, default=7.0)
    parser.add_argument("--apply", action="store_true", help="remove; without it, list only")
    options = parser.parse_args()
    home = installation.home(os.environ)
    environment = Installation(home=home, port=0).environment(os.environ)
    store, registry = (
        environment[name] for name in ("AIRFLOW__TRAINYARD__STORE", "MLFLOW_TRACKING_URI")
    )
    if "://" not in store and not Path(store).is_dir():
        print(f"{store} is not there: nothing has run yet.")
        return 0
    os.environ["MLFLOW_TRACKING_URI"] = registry
    try:
        keep = retention.Keep(
            days=options.keep_days, runs=options.keep_runs, checkpoint_days=options.checkpoint_days
        )
        plan = retention.plan(store, keep)
        print(*plan.lines(), sep="\n")
        count = len(plan.runs) + len(plan.checkpoints) + len(plan.versions)
        if options.apply:
            plan.apply()
        print(f"{count} to remove." if not options.apply else f"{count} removed.")
    except JobError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
