#!/usr/bin/env python3
"""A search on Spark against plain Optuna in one process, and two slots against one.

    python bench/tuning.py [--repeats N] [--keep DIR --seconds N]

16 trials of MNIST's network on 3,500 digits, 8 epochs each, the same 16 sets of values each time,
no pruning; in a session that is there, its Python processes warm. The peer trains as one would by
hand: all rows in memory, plain PyTorch, one thread, `study.optimize` on SQLite. Bars: two slots
<= 0.65 of one slot's time; with one slot a trial takes <= 1 s more than the peer's. Then, by
boosted trees on 1,797 small digits, 24 trials of TPE with each of the seeds 0 to 7: the mean of the
best validation losses is no worse than the peer's with the same seeds, by 2 of its standard errors.
With --keep and --seconds it runs in pieces.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from support.data import ROOT, repeated_digits
from support.kept import Kept, add_options, kept
from support.process import in_process
from support.tables import bar, machine, ratio, show

PROGRAM = ROOT / "bench" / "support" / "search.py"
TRIALS = 16
SEEDS = range(8)


def main() -> int:
    """Measure side by side; answer 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    add_options(parser)
    given = parser.parse_args()
    print(f"{TRIALS} trials; {machine()}")
    with kept(given) as known:
        digits = known.dataset("digits", lambda path: repeated_digits(path, 3500, 500)).directory
        small = known.dataset("small", small_digits).directory
        times = {
            kind: [
                searched(known, f"network {number}", kind, digits)["seconds"]
                for number in range(given.repeats)
            ]
            for kind in ("plain", "1", "2")
        }
        bests = {
            kind: [
                searched(known, f"trees {seed}", kind, small, seed=seed)["best"] for seed in SEEDS
            ]
            for kind in ("plain", "2")
        }
    return 0 if judged(times, bests) else 1


def small_digits(directory: Path) -> Any:
    """scikit-learn's digits, split in three."""
    from boosted import real_dataset  # beside the tests, as `support.data` has it on the path

    return real_dataset(directory, "multiclass")


def judged(times: dict[str, list[float]], bests: dict[str, list[float]]) -> bool:
    """Print what was measured, and whether the bars hold."""
    names = {"plain": "plain Optuna", "1": "1 slot", "2": "2 slots"}
    show(f"{TRIALS} trials", "s", {names[kind]: found for kind, found in times.items()})
    holds = bar("2 slots / 1 slot", ratio("wall", times["2"], times["1"]), most=0.65)
    more = [(ours - plain) / TRIALS for ours, plain in zip(times["1"], times["plain"], strict=True)]
    holds &= bar("seconds that a trial takes more than by plain Optuna", more, most=1.0)
    print(f"\nbest validation loss of 24 trials, seeds {SEEDS.start} to {SEEDS.stop - 1}")
    for kind, found in bests.items():
        print(f"  {names[kind]:<12}  {' '.join(f'{value:.4f}' for value in found)}")
    worse = [ours - plain for ours, plain in zip(bests["2"], bests["plain"], strict=True)]
    error = statistics.stdev(worse) / len(worse) ** 0.5
    print(f"  2 slots less plain: mean {statistics.mean(worse):+.4f}, standard error {error:.4f}")
    return (
        bar("mean difference in standard errors", [statistics.mean(worse) / error], most=2) & holds
    )


def searched(known: Kept, name: str, kind: str, dataset: str, **more: Any) -> dict[str, Any]:
    """What one search took and found, in a process of its own."""
    return dict(known.measured(f"{name}, {kind}", lambda: run(kind, dataset, more)))


def run(kind: str, dataset: str, more: dict[str, Any]) -> dict[str, Any]:
    """Run a search in a process of its own."""
    path = f"{ROOT / 'jobs'}:{ROOT / 'bench'}"
    command = [sys.executable, str(PROGRAM), kind, dataset, json.dumps(more)]
    env = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return dict(in_process(command, env, seconds=600))


if __name__ == "__main__":
    sys.exit(main())
