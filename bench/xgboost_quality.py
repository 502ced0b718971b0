#!/usr/bin/env python3
"""Whether two workers learn as well as native XGBoost, and how far chance alone drives it apart.

    python bench/xgboost_quality.py [--datasets N] [--keep DIR --seconds N]

Native XGBoost with two threads and two workers learn nine months of flights, N times, each time
without ten other rows of 245,000; with 100 rounds, and with early stopping by the tenth month's
area under the ROC curve. The last two months judge. Bar: on the mean of all times the areas differ
by 0.002 at most. Two workers sketch the bins of a feature a little differently than one does: that
too counts as chance.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import xgboost as xgb
from support.boosting import WORKERS, area, fit_native, kinds, table
from support.flights import flights, varied_flights
from support.kept import add_options, kept
from support.tables import machine
from support.workers import trained

from trainyard.dataset import Dataset
from trainyard.xgboost.booster import from_bytes

SETTINGS: dict[str, dict[str, Any]] = {
    "100 rounds": {"rounds": 100, "max_depth": 6},
    "early stopping": {
        "rounds": 400,
        "max_depth": 6,
        "learning_rate": 0.1,
        "metrics": "auc",
        "early_stopping_rounds": 20,
    },
}


def main() -> int:
    """Measure side by side; answer 1 where the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", type=int, default=8)
    add_options(parser)
    given = parser.parse_args()
    print(f"area under the ROC curve of the last two months; {machine()}")
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {"native": [], "two workers": []} for name in SETTINGS
    }
    with kept(given) as known:
        for seed in range(given.datasets):
            dataset = known.dataset(
                f"without-{seed}", lambda path, n=seed: varied_flights(path, flights(), n)
            )
            for name, settings in SETTINGS.items():
                for kind, results in found[name].items():
                    work = functools.partial(learnt, kind, dataset, settings)
                    results.append(known.measured(f"{name}, {kind}, {seed}", work))
    missed = [name for name, results in found.items() if not judged(name, results)]
    return 1 if missed else 0


def learnt(kind: str, dataset: Dataset, settings: dict[str, Any]) -> dict[str, Any]:
    """The area, and the rounds that were kept."""
    if kind == "native":
        booster = fit_native(dataset, settings)
    else:
        with tempfile.TemporaryDirectory() as directory:
            booster = from_bytes(
                trained(dataset, Path(directory) / "run", WORKERS, settings).booster or b""
            )
    features, _ = table(dataset, "test")
    scores = booster.predict(xgb.DMatrix(features, nthread=WORKERS, **kinds(dataset)))
    return {"auc": area(dataset, scores), "rounds": booster.num_boosted_rounds()}


def judged(name: str, found: dict[str, list[dict[str, Any]]]) -> bool:
    """Print what came out, and whether the bar holds."""
    print(f"\n{name}")
    for kind, results in found.items():
        areas, rounds = ([one[what] for one in results] for what in ("auc", "rounds"))
        print(
            f"  {kind:<11}  {median(areas):.4f}   {min(areas):.4f} to {max(areas):.4f}, "
            f"rounds {min(rounds)} to {max(rounds)}, n={len(areas)}"
        )
    pairs = zip(found["two workers"], found["native"], strict=True)
    apart = [ours["auc"] - theirs["auc"] for ours, theirs in pairs]
    error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else float("nan")
    holds = abs(mean(apart)) <= 0.002
    print(
        f"  {'holds' if holds else 'MISSED'}: means differ by <= 0.002, here {mean(apart):+.4f}, "
        f"standard error {error:.4f}; single ones by {min(apart):+.4f} to {max(apart):+.4f}"
    )
    return holds


if __name__ == "__main__":
    sys.exit(main())
