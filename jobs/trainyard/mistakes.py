"""The rows that a model got most wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from trainyard.dataset import FEATURES, KEY, LABEL, Dataset
from trainyard.judgement import CHALLENGER
from trainyard.parts import UNITS, read_units, schema_of, units

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A row that a classifier got wrong although it was sure of it.

    Attributes:
        key: of the row.
        label: its class index.
        prediction: the class index predicted.
        probability: that the model gave to its prediction.
        features: float32 [width].
    """

    key: str
    label: int
    prediction: int
    probability: float
    features: np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Miss:
    """A row whose number a model missed.

    Attributes:
        key: of the row.
        label: its number, in the label's unit, as `prediction`.
        prediction: the number predicted.
    """

    key: str
    label: float
    prediction: float


def misses(scored: DataFrame, count: int) -> list[Miss]:
    """The rows of a regression that the challenger missed by most."""
    prediction = F.col(f"{CHALLENGER}_prediction")
    furthest = scored.orderBy(F.desc(F.abs(prediction - F.col(LABEL))), KEY).limit(count)
    rows = furthest.select(KEY, LABEL, prediction).collect()
    return [Miss(key=key, label=label, prediction=value) for key, label, value in rows]


def mistakes(
    spark: SparkSession, dataset: Dataset, split: str, scored: DataFrame, count: int
) -> list[Mistake]:
    """The rows that the challenger got wrong with the highest probability."""
    prediction = F.col(f"{CHALLENGER}_prediction")
    probability = F.array_max(f"{CHALLENGER}_probability")
    columns = [
        F.col(KEY),
        F.col(LABEL),
        prediction.alias("prediction"),
        probability.alias("probability"),
    ]
    worst = scored.filter(prediction != F.col(LABEL)).select(*columns)
    rows = worst.orderBy(F.desc("probability"), KEY).limit(count).collect()
    wanted = {row[KEY] for row in rows}

    def pick(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in read_units(batches, schema_of(dataset)):
            chosen = pa.array([key in wanted for key in batch.column(KEY).to_pylist()])
            yield batch.select([KEY, FEATURES]).filter(chosen)

    if not rows:
        return []
    frame = spark.createDataFrame(units(dataset, split), UNITS)
    found = frame.mapInArrow(pick, f"{KEY} string, {FEATURES} array<float>").collect()
    features = {row[KEY]: np.asarray(row[FEATURES], np.float32) for row in found}
    return [
        Mistake(
            key=row[KEY],
            label=int(row[LABEL]),
            prediction=int(row["prediction"]),
            probability=float(row["probability"]),
            features=features[row[KEY]],
        )
        for row in rows
    ]
