"""XGBoost's workers as plain processes: what Spark's tasks do, without Spark."""

from __future__ import annotations

import functools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from trainyard.barrier.engine import Place, assign
from trainyard.dataset import Dataset
from trainyard.specs import TrainXGBoost
from trainyard.xgboost.engine import XGBoostEngine, XGBoostMember
from trainyard.xgboost.history import TrainResult
from trainyard.xgboost.train import train

_HOST = "127.0.0.1"


def trained(dataset: Dataset, run_dir: Path, workers: int, settings: dict[str, Any]) -> TrainResult:
    """What rank 0 of so many workers returns."""
    run_dir.mkdir()
    given = {"run_dir": str(run_dir), "dataset": dataset.directory, "model_name": "bench"}
    spec = TrainXGBoost.from_mapping({**given, "num_workers": workers, **settings})
    engine = XGBoostEngine(start_timeout=60, stall_timeout=120)
    places = assign([_HOST] * workers)
    context = multiprocessing.get_context("spawn")
    with engine.serve(_HOST, workers) as member, ProcessPoolExecutor(workers, context) as pool:
        found = list(pool.map(functools.partial(_work, member, spec), places))
    return found[0]


def _work(member: XGBoostMember, spec: TrainXGBoost, place: Place) -> TrainResult:
    with member.joined(place, _HOST):
        return train(spec, Dataset.read(spec.dataset), claim=1)
