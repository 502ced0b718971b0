"""A prepared dataset of any size: real digits, repeated."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "jobs"))

from made_datasets import digits, write_dataset  # noqa: E402 - lies beside the tests

from trainyard.dataset import Dataset  # noqa: E402 - as above

__all__ = ["ROOT", "repeated_digits", "write_dataset"]

ROW_GROUP_ROWS = 2048


def repeated_digits(directory: Path, rows: int, validation: int = 0) -> Dataset:
    """Write a dataset of `rows` training rows and `validation` rows, each of 784 pixels."""
    features, labels = digits()["train"]
    splits = {}
    for split, count in (("train", rows), ("validation", validation)):
        index = np.arange(count) % len(labels)
        splits[split] = features[index], labels[index]
    if not validation:
        del splits["validation"]
    return write_dataset(directory, splits, classes=10, row_group_rows=ROW_GROUP_ROWS)
