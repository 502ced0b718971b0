"""The same judgement for each value of a column: a mean over all rows can hide a bad part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainyard.bootstrap import Intervals, Plan, intervals
from trainyard.dataset import Dataset
from trainyard.errors import JobError, SettingError, nearest
from trainyard.judgement import Judged

MOST_VALUES = 100

NO_VALUE = "(null)"
"""What a row without a value is counted under."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The rows with one value of a column.

    Attributes:
        rows: how many there are; of those that were brought to the driver.
    """

    column: str
    value: str
    rows: int
    found: Intervals


def check_columns(wanted: Sequence[str], dataset: Dataset) -> None:
    """Raise `SettingError` when a column was not kept by the prepare job."""
    for column in wanted:
        if column not in dataset.keep:
            fix = nearest(column, dataset.keep) if dataset.keep else "Prepare it again with 'keep'."
            raise SettingError(
                "slices", list(wanted), f"the dataset did not keep column {column!r}", fix
            )


def slices(judged: Judged, dataset: Dataset, wanted: Sequence[str], plan: Plan) -> list[Slice]:
    """Judge the models on the rows of each value of some columns, the largest first.

    Raises:
        JobError: a column has too many values.
    """
    found = []
    for column in wanted:
        at = dataset.keep.index(column)
        # As objects: numpy's own texts lose what ends in a null character.
        values = np.array([_label(row[at]) for row in judged.keep], dtype=object)
        counts = Counter(values.tolist())
        if len(counts) > MOST_VALUES:
            raise JobError(
                f"setting 'slices' names {column!r}, which has {len(counts)} values; "
                f"{MOST_VALUES} at most can be judged one by one.",
                "Keep a coarser column, such as ranges of it.",
            )
        for value, rows in counts.most_common():
            positions = np.flatnonzero(values == value)
            models = {name: model.at(positions) for name, model in judged.models.items()}
            found.append(
                Slice(
                    column=column,
                    value=value,
                    rows=rows,
                    found=intervals(models, plan, share=judged.share),
                )
            )
    return found


def _label(value: str | None) -> str:
    if value is None:
        return NO_VALUE
    return repr(value) if value == NO_VALUE else value
