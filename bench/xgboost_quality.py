#!/usr/bin/env python3
"""Whether two workers learn as well as native XGBoost, and how far chance alone drives it apart.

    python bench/xgboost_quality.py [--datasets N] [--keep DIR --seconds N]

Native XGBoost with two threads and two workers learn nine months of flights, N times, each time
without ten other rows of 245,000; with 100 rounds, and with early stopping by the tenth month's
area under the ROC curve. The last two months judge. Bins of a feature with over 2,048 values are
sketched a little differently by two workers: that is humidity alone. Bars: with humidity in whole
percents, in the first two of the datasets, the areas differ by 0.002 at most; as it is, by no more
than chance: two standard errors of the mean difference.
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
from support.kept import Kept, add_options, kept
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

KINDS = ("native", "two workers")
_COARSE = 2
"""Datasets with humidity in whole percents: equal bins, and so no chance."""


def main() -> int:
    """Measure side by side; answer 1 where the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", type=int, default=8)
    add_options(parser)
    given = parser.parse_args()
    print(f"area under the ROC curve of the last two months; {machine()}")
    holds = []
    with kept(given) as known:
        for coarse, count in ((True, min(_COARSE, given.datasets)), (False, given.datasets)):
            for name, settings in SETTINGS.items():
                whole = f"{name}, humidity {'in whole percents' if coarse else 'as it is'}"
                found = [measured(known, whole, settings, n, coarse) for n in range(count)]
                holds.append(judged(whole, found, most=0.002 if coarse else None))
    return 0 if all(holds) else 1


def measured(
    known: Kept, name: str, settings: dict[str, Any], seed: int, coarse: bool
) -> dict[str, dict[str, Any]]:
    """What native XGBoost and two workers learn from one dataset."""
    dataset = known.dataset(
        f"{'coarse' if coarse else 'without'}-{seed}",
        lambda path: varied_flights(path, flights(), seed, coarse=coarse),
    )
    return {
        kind: known.measured(
            f"{name}, {kind}, {seed}", functools.partial(learnt, kind, dataset, settings)
        )
        for kind in KINDS
    }


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


def judged(name: str, found: list[dict[str, dict[str, Any]]], *, most: float | None) -> bool:
    """Print what came out, and whether the bar holds: chance where no number is given."""
    print(f"\n{name}")
    for kind in KINDS:
        areas, rounds = ([one[kind][what] for one in found] for what in ("auc", "rounds"))
        print(
            f"  {kind:<11}  {median(areas):.4f}   {min(areas):.4f} to {max(areas):.4f}, "
            f"rounds {min(rounds)} to {max(rounds)}, n={len(areas)}"
        )
    apart = [one["two workers"]["auc"] - one["native"]["auc"] for one in found]
    if most is not None:
        holds = all(abs(one) <= most for one in apart)
        wanted = f"each differs by <= {most}"
    else:
        most = 2 * stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else float("nan")
        holds = bool(abs(mean(apart)) <= most)
        wanted = f"the mean differs by <= {most:.4f}, two standard errors"
    print(
        f"  {'holds' if holds else 'MISSED'}: {wanted}, here {mean(apart):+.4f}, "
        f"{min(apart):+.4f} to {max(apart):+.4f}"
    )
    return holds


if __name__ == "__main__":
    sys.exit(main())
