"""What the training labels of all workers are together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
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


def check(dataset: Dataset, objective: str, own: npt.NDArray[Any]) -> None:
    """Refuse labels that cannot be learnt; all workers see the same.

    Args:
        dataset: the prepared dataset.
        objective: XGBoost's name of it.
        own: this worker's training labels [rows].

    Raises:
        JobError: all are the same, or the objective does not take them.
    """
    least, most = _bounds(own)
    if least == most:
        value = dataset.classes[int(least)] if dataset.task == CLASSIFICATION else f"{least:g}"
        raise JobError(
            f"all {dataset.rows('train')} training rows have the label {value!r}: there is nothing "
            "to learn.",
            "Prepare a dataset whose training split has different labels.",
        )
    low, high, said = _RANGES.get(objective, (-np.inf, np.inf, ""))
    if least < low or most > high:
        raise JobError(
            f"setting 'objective' is {objective!r}, which takes labels {said}, but column "
            f"{dataset.label!r} has {least:g} to {most:g} in the training split.",
            "Use another objective, or change the labels.",
        )


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
