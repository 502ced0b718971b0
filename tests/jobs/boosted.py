"""Datasets of real rows for XGBoost, the native training that ours is compared with, and specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost as xgb
from made_datasets import write_dataset
from sklearn import datasets

from trainyard.dataset import Dataset
from trainyard.specs import TrainXGBoost

Rows = tuple[npt.NDArray[np.float32], npt.NDArray[Any]]

KINDS = ("binary", "multiclass", "regression")

_LOADERS = {
    "binary": datasets.load_breast_cancer,
    "multiclass": datasets.load_digits,
    "regression": datasets.load_diabetes,
}


def real_rows(kind: str) -> dict[str, Rows]:
    """Rows of a data set that scikit-learn carries, split 60/20/20."""
    features, labels = _LOADERS[kind](return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    features = features[order].astype(np.float32)
    labels = labels[order].astype(np.float64 if kind == "regression" else np.int64)
    first, second = int(0.6 * len(labels)), int(0.8 * len(labels))
    cuts = {
        "train": slice(0, first),
        "validation": slice(first, second),
        "test": slice(second, None),
    }
    return {split: (features[cut], labels[cut]) for split, cut in cuts.items()}


def real_dataset(directory: Path, kind: str, **more: Any) -> Dataset:
    """`real_rows` as a prepared dataset of small row groups."""
    rows = real_rows(kind)
    classes = 0 if kind == "regression" else len(np.unique(rows["train"][1]))
    return write_dataset(directory, rows, classes=classes, row_group_rows=50, **more)


def spec_of(run_dir: Path, dataset: Dataset, **settings: Any) -> TrainXGBoost:
    given = {
        "run_dir": str(run_dir),
        "dataset": dataset.directory,
        "model_name": "test",
        "num_workers": 1,
        "rounds": 12,
        "max_depth": 3,
        **settings,
    }
    return TrainXGBoost.from_mapping(given)


def native(
    rows: dict[str, Rows],
    params: dict[str, Any],
    rounds: int = 12,
    *,
    matrix: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[xgb.Booster, dict[str, dict[str, list[float]]]]:
    """What plain `xgboost.train` makes of the same rows, and its metrics by split."""
    made: dict[str, Any] = {}
    for split in ("train", "validation"):
        extra = {k: v[split] if isinstance(v, dict) else v for k, v in (matrix or {}).items()}
        made[split] = xgb.QuantileDMatrix(*rows[split], ref=made.get("train"), **extra)
    log: dict[str, dict[str, list[float]]] = {}
    booster = xgb.train(
        {"max_depth": 3, "learning_rate": 0.3, "tree_method": "hist", "nthread": 1, **params},
        made["train"],
        rounds,
        evals=[(made[split], split) for split in made],
        evals_result=log,
        verbose_eval=False,
        **more,
    )
    return booster, log


NATIVE: dict[str, dict[str, Any]] = {
    "binary": {"objective": "binary:logistic"},
    "multiclass": {"objective": "multi:softprob", "num_class": 10},
    "regression": {"objective": "reg:squarederror"},
}
"""Parameters of `native` by kind of label."""


def trees(booster: xgb.Booster) -> list[str]:
    """The trees as text, by which two boosters are the same or not."""
    return list(booster.get_dump(with_stats=True, dump_format="json"))
