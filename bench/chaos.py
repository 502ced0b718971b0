#!/usr/bin/env python3
"""Random kill -9s, one in each run of a job in cluster mode: how many claims did the work?

    python bench/chaos.py [--kills N] [--seed SEED] [--only VICTIM ...]

One Airflow and one Spark cluster serve all the runs; what was killed is started again a few seconds
later. The victim and the moment come from the seed, which is printed. After each kill:

- the run is green;
- one claim of the generation did the work. A claim works from the moment it is made until its last
  sign of life: a beat, an event that its driver or a rank of it wrote, its result. A duplicate is
  two claims in one run directory, which is that of one generation, whose work overlaps. There is
  none, and the result is that of the last claim;
- a driver that was not hit is not replaced: there is a second claim only if a driver died;
- no slot of a pool, core of the cluster, driver, executor or record of a driver is left.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "jobs")]

from tests.e2e.runs import Run, dag_ids  # noqa: E402 - lies beside the tests

from services import victims  # noqa: E402 - lies beside scripts/
from services.lifelines import lifelines, problems_of  # noqa: E402
from services.testbed import Testbed, wait_for  # noqa: E402
from services.victims import Victim  # noqa: E402

RUN_SECONDS = 400.0
IDLE_SECONDS = 30.0

Scene = tuple[Victim, str, float]
"""What is killed, the DAG that runs meanwhile, and within how many seconds after it appears."""

SCENES: dict[str, Scene] = {
    "executor": (victims.EXECUTOR, "prepare_in_triggerer", 8),
    "driver's JVM": (victims.DRIVER_JVM, "prepare_in_triggerer", 10),
    "driver's Python": (victims.DRIVER_PYTHON, "prepare_in_triggerer", 8),
    "worker 1 alone": (victims.spark_worker(1, alone=True), "prepare_in_triggerer", 20),
    "worker 2 and all on it": (victims.spark_worker(2), "prepare_in_triggerer", 20),
    "master": (victims.MASTER, "prepare_in_triggerer", 20),
    "Airflow worker, submitting": (victims.AIRFLOW_WORKER, "prepare_in_triggerer", 3),
    "Airflow worker, waiting": (victims.AIRFLOW_WORKER, "prepare_in_worker", 20),
    "triggerer": (victims.TRIGGERER, "prepare_in_triggerer", 20),
    "scheduler": (victims.SCHEDULER, "prepare_in_triggerer", 20),
    "scheduler, task waiting": (victims.SCHEDULER, "prepare_in_worker", 20),
}


def main(kills: int, seed: int, scenes: list[str]) -> int:
    """Kill, and print what came of each kill."""
    dice = random.Random(seed)  # noqa: S311 - it chooses victims
    print(f"seed {seed}, {kills} kills", flush=True)
    claims: Counter[int] = Counter()
    bad = done = 0
    with (
        tempfile.TemporaryDirectory(prefix="trainyard-chaos-") as folder,
        Testbed(Path(folder), ROOT / "tests" / "faults" / "dags") as testbed,
    ):
        wait_for(lambda: len(dag_ids(testbed.api)) == 4, 120)
        while done < kills:
            name = dice.choice(scenes)
            began = time.monotonic()
            outcome = one(testbed, SCENES[name], dice)
            if outcome is None:
                continue  # the run was over before the moment came
            moment, count, problems = outcome
            done += 1
            bad += bool(problems)
            claims[count] += 1
            took = time.monotonic() - began
            said = "; ".join(problems) or "one did the work, nothing is left"
            print(
                f"{done:3}  {name:27} at {moment:4.1f} s, over at {took:4.0f} s  {said}", flush=True
            )
    print(f"generations by their claims, of which each but the last was killed: {dict(claims)}")
    print(f"generations in which not one claim did the work, or that left a thing: {bad} (bar: 0)")
    return 1 if bad else 0


def one(testbed: Testbed, scene: Scene, dice: random.Random) -> tuple[float, int, list[str]] | None:
    """A run with one kill: when it came, how many claims there are, and what is wrong."""
    victim, dag, within = scene
    wait, away = dice.uniform(0, within), dice.uniform(1, 6)
    run = Run.trigger(testbed.api, dag)
    began = time.monotonic()
    wait_for(lambda: victim.find(testbed) or has_ended(run), RUN_SECONDS)
    time.sleep(wait)
    moment = time.monotonic() - began
    driver_died = None if has_ended(run) else victim.strike(testbed, away)
    try:
        wait_for(lambda: has_ended(run), RUN_SECONDS, every=0.5)
    except TimeoutError:
        states = {name: task["state"] for name, task in run.tasks().items()}
        return moment, 0, [f"{run.run_id} does not end: {states}"]
    if driver_died is None:
        return None
    (run_dir,) = testbed.run_dirs(run.dag_id, run.run_id, "job")
    lines = lifelines(run_dir)
    problems = problems_of(lines)
    if (state := testbed.api.get(*run.path)["state"]) != "success":
        problems.append(f"{run.run_id} is {state}")
    if len(lines) > 1 + driver_died:
        problems.append(f"{len(lines)} claims")
    try:
        wait_for(testbed.is_idle, IDLE_SECONDS)
    except TimeoutError:
        problems.append(f"left: {testbed.leavings()}")
    return moment, len(lines), problems


def has_ended(run: Run) -> bool:
    """Whether the run is over."""
    return run.api.get(*run.path)["state"] in ("success", "failed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--only", nargs="+", choices=list(SCENES), default=list(SCENES))
    options = parser.parse_args()
    sys.exit(main(options.kills, options.seed, options.only))
