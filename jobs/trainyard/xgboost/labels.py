"""What the training labels of all workers are together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost as xgb
from xgboost import collective

from trainyard.dataset import CLASSIFICATION, Dataset
from trainyard.errors import JobError

_RANGES: dict[str, tuple[float, float, str]] = {
    "reg:logistic": (0.0, 1.0, "from 0 to 1"),
    "reg:gamma": (np.nextafter(0.0, 1.0), np.inf, "above 0"),
    "reg:tweedie": (0.0, np.inf, "of 0 or more"),
    "count:poisson": (0.0, np.inf, "of 0 or more"),
    "reg:squaredlogerror": (np.nextafter(-1.0, 0.0), np.inf, "above -1"),
}
"""The labels that an objective takes, where not all."""


def check(dataset: Dataset, own: npt.NDArray[Any], *, counting: str = "") -> None:
    """Refuse training labels that are all the same; all workers see the same.

    Args:
        dataset: the prepared dataset.
        own: this worker's training labels [rows].
        counting: which rows they are of, where not of all.

    Raises:
        JobError: there is nothing to learn.
    """
    least, most = _bounds(own)
    if least == most:
        value = dataset.classes[int(least)] if dataset.task == CLASSIFICATION else f"{least:g}"
        rounded = "" if dataset.task == CLASSIFICATION else " as 32-bit floats"
        raise JobError(
            f"all {dataset.rows('train')} training rows{counting} have the label {value!r}"
            f"{rounded}: there is nothing to learn.",
            "Prepare a dataset whose training split has different labels.",
        )


def check_range(dataset: Dataset, objective: str, split: str, own: npt.NDArray[Any]) -> None:
    """Refuse labels that the objective does not take; all workers see the same.

    Args:
        dataset: the prepared dataset.
        objective: XGBoost's name of it.
        split: whose labels they are.
        own: this worker's labels [rows].

    Raises:
        JobError: one is out of the objective's range.
    """
    if objective not in _RANGES:
        return
    low, high, said = _RANGES[objective]
    least, most = _bounds(own)
    if least < low or most > high:
        raise JobError(
            f"setting 'objective' is {objective!r}, which takes labels {said}, but column "
            f"{dataset.label!r} has {least:g} to {most:g} in the {split} split.",
            "Use another objective, or change the labels.",
        )


def check_weights(dataset: Dataset, split: str, matrix: xgb.DMatrix) -> None:
    """Refuse weights by which no row counts, or in training those of one label alone.

    Args:
        dataset: the prepared dataset.
        split: whose weights they are.
        matrix: this worker's rows of it, with weights.

    Raises:
        JobError: nothing can be learnt from the rows, or measured by them.
    """
    weights = matrix.get_weight()
    counts = weights > 0
    if not _together(np.array([counts.sum()], np.float64), collective.Op.SUM)[0]:
        raise JobError(
            f"all {dataset.rows(split)} rows of the {split} split have a weight of 0, by column "
            f"{dataset.weight!r} and class_weights: none of them counts.",
            "Correct the weights, or leave them out.",
        )
    if split == "train":
        own = matrix.get_label()[counts]
        check(dataset, own, counting=" with a weight above 0")


def class_rows(dataset: Dataset, own: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Training rows of each class, [classes], over all workers."""
    counts = np.bincount(own, minlength=len(dataset.classes)).astype(np.float64)
    return _together(counts, collective.Op.SUM)


def _bounds(own: npt.NDArray[Any]) -> tuple[float, float]:
    least = own.min() if len(own) else np.inf
    most = own.max() if len(own) else -np.inf
    found = _together(np.array([-float(least), float(most)]), collective.Op.MAX)
    return float(-found[0]), float(found[1])


def _together(values: npt.NDArray[np.float64], op: collective.Op) -> npt.NDArray[np.float64]:
    if collective.get_world_size() == 1:
        return values
    return collective.allreduce(values, op)
