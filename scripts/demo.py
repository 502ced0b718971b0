#!/usr/bin/env python3
"""Run the DAG mnist_horovod through Airflow to its end and say what came out.

    scripts/demo.py                    # make demo
    scripts/demo.py --epochs 5 --seed 7

Starts Airflow's services where they are down, and stops only what it started. Each run trains with
another seed, so that the second one shows the gate at work. Ctrl-C fails the run and leaves nothing
behind. Exits with 1 where the run failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from datetime import UTC, datetime
from types import FrameType

from local import Services
from services.api import Api, ApiError
from services.following import Follower
from services.installation import ROOT, USER
from services.summary import summary

sys.path.insert(0, str(ROOT / "jobs"))
from trainyard.errors import JobError

DAG = "mnist_horovod"
PARSE_SECONDS = 120


def main() -> int:
    """Run the demo; answer with the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--seed", type=int, help="seed of the training (default: runs so far)")
    parser.add_argument("--epochs", type=int, help="passes over the data (default: the DAG's)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    services = Services()
    ours = not services.running
    began = time.time()
    try:
        services.up()
        return run_demo(services, options, began, fresh=ours)
    except JobError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            services.down()


def run_demo(services: Services, options: argparse.Namespace, began: float, *, fresh: bool) -> int:
    """Trigger one run, follow it, print its summary; answer with the exit code."""
    place = services.installation
    api = Api(place.url, USER, place.password())
    wait_for_dag(api, newer_than=began if fresh else 0.0)
    runs = api.get("dags", DAG, "dagRuns", limit=1)["total_entries"]
    conf = {"seed": runs if options.seed is None else options.seed}
    if options.epochs is not None:
        conf["epochs"] = options.epochs
    run_id = f"demo__{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    api.post(
        "dags", DAG, "dagRuns", body={"dag_run_id": run_id, "logical_date": None, "conf": conf}
    )
    given = ", ".join(f"{name} {value}" for name, value in conf.items())
    print(f"Run {run_id} of {DAG} with {given}.", flush=True)
    print(f"  watch  {place.url}/dags/{DAG}/runs/{run_id}", flush=True)
    follower = Follower(api, place, DAG, run_id)
    try:
        state = follower.follow()
    except KeyboardInterrupt:
        print("\nFailing the run ...", file=sys.stderr, flush=True)
        api.patch("dags", DAG, "dagRuns", run_id, body={"state": "failed"})
        follower.wait_for_drivers(seconds=20)
        raise
    if state != "success":
        print(follower.failures(), file=sys.stderr)
        return 1
    print(summary(follower.results(), follower.seconds(), time.time() - began))
    return 0


def wait_for_dag(api: Api, *, newer_than: float) -> None:
    """Wait until the DAG's file has been read after a time.

    Raises:
        JobError: it cannot be imported, or was not read in time.
    """
    deadline = time.monotonic() + PARSE_SECONDS
    while time.monotonic() < deadline:
        try:
            details = api.get("dags", DAG)
            if _seconds(details["last_parsed_time"]) >= newer_than:
                return
        except ApiError as error:
            if error.status != 404:
                raise
        for problem in api.get("importErrors")["import_errors"]:
            raise JobError(
                f"{problem['filename']} cannot be imported:\n{problem['stack_trace']}",
                "Correct the file.",
            )
        time.sleep(0.5)
    raise JobError(
        f"the DAG {DAG} did not appear in {PARSE_SECONDS} s.", "See var/log/dag-processor.log."
    )


def _seconds(time_text: str | None) -> float:
    return datetime.fromisoformat(time_text).timestamp() if time_text else 0.0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
