#!/usr/bin/env python3
"""How long a Spark ML estimator takes on a DataFrame: this project's against Horovod's own.

    python bench/estimator.py [--repeats N] [--rows N]

Two ranks, 10,000 rows of 784 pixels, 2 epochs, the same network, loss and optimizer, in a fresh
Spark session each time, which has done a task of Python before the clock starts. `fit` begins with
the DataFrame and ends with the model; `transform` ends with every row's prediction. Bars: `fit` <=
0.6 and `transform` <= 0.2 of what Horovod's own TorchEstimator takes with petastorm, which lives in
an environment of its own: `make bench-peer` makes it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from support.data import ROOT, repeated_digits
from support.process import in_process
from support.tables import bar, machine, ratio, show

PROGRAM = ROOT / "bench" / "support" / "estimator_run.py"
PEER = ROOT / ".venv" / "estimator" / "bin" / "python"


def main() -> int:
    """Measure side by side; answer 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10_000)
    given = parser.parse_args()
    if not PEER.exists():
        print("there is no environment of the peer: run `make bench-peer`", file=sys.stderr)
        return 2
    print(f"two ranks, {given.rows} rows of 784, 2 epochs; {machine()}")
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        dataset = repeated_digits(Path(directory), given.rows).directory
        for _ in range(given.repeats):
            for who, python in (("Trainyard's", sys.executable), ("Horovod's", str(PEER))):
                for what, seconds in once(python, who, dataset).items():
                    measured.setdefault(f"{who} {what}", []).append(seconds)
    show("seconds", "s", measured)
    fit = ratio("fit", measured["Trainyard's fit"], measured["Horovod's fit"])
    transform = ratio(
        "transform", measured["Trainyard's transform"], measured["Horovod's transform"]
    )
    holds = bar("fit / Horovod's fit", fit, most=0.6)
    return 0 if bar("transform / Horovod's transform", transform, most=0.2) and holds else 1


def once(python: str, who: str, dataset: str) -> dict[str, float]:
    """Fit and transform once in a process of its own; the seconds of each."""
    command = [python, str(PROGRAM), who.removesuffix("'s").lower(), dataset]
    env = {"PYTHONPATH": str(ROOT / "jobs"), "OMP_NUM_THREADS": "1"}
    return dict(in_process(command, env, seconds=900))


if __name__ == "__main__":
    sys.exit(main())
