"""Scores a dataset's split with one model or two on the same rows, and judges each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from trainyard.dataset import FEATURES, KEY, LABEL, Dataset
from trainyard.errors import JobError
from trainyard.metrics import Metric, macro, mean, wilson
from trainyard.parts import UNITS, lists, matrix, read_units, schema_of, units
from trainyard.scoring import Shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHALLENGER = "challenger"
CHAMPION = "champion"

_EXAMPLES = 3


def score(
    spark: SparkSession, dataset: Dataset, split: str, models: dict[str, Shipped]
) -> DataFrame:
    """A split's rows as `key`, `label`, and what each model says of them.

    These are `NAME_prediction` (a class index as a double, or -1 where the model's scores are not
    finite), `NAME_probability` and `NAME_loss`.
    """
    names = ", ".join(
        f"{n}_prediction double, {n}_probability array<double>, {n}_loss double" for n in models
    )

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scorers = {name: shipped.scorer() for name, shipped in models.items()}
        for batch in read_units(batches, schema_of(dataset)):
            features = matrix(batch.column(FEATURES), dataset.width)
            labels = batch.column(LABEL).to_numpy()
            columns: dict[str, Any] = {KEY: batch.column(KEY), LABEL: labels.astype(np.float64)}
            for name, scorer in scorers.items():
                logs = scorer.log_probabilities(features)
                finite = np.isfinite(logs.sum(axis=1))
                columns[f"{name}_prediction"] = np.where(finite, logs.argmax(axis=1), -1).astype(
                    np.float64
                )
                columns[f"{name}_probability"] = lists(np.exp(logs))
                columns[f"{name}_loss"] = -logs[np.arange(len(labels)), labels]
            yield pa.record_batch(columns)

    frame = spark.createDataFrame(units(dataset, split), UNITS)
    return frame.mapInArrow(work, f"{KEY} string, {LABEL} double, {names}")


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How one model did.

    Attributes:
        metrics: by name.
        confusion: rows [label, prediction].
    """

    metrics: dict[str, Metric]
    confusion: np.ndarray[Any, Any]


def judge(scored: DataFrame, name: str, classes: int, confidence: float) -> Judgement:
    """Judge one model by the rows that it scored.

    Raises:
        JobError: the rows have one class only, or a score is not finite.
    """
    prediction = f"{name}_prediction"
    cells = scored.groupBy(LABEL, prediction).count().collect()
    confusion = np.zeros((classes, classes), np.int64)
    for cell in cells:
        if cell[prediction] < 0:
            raise _not_finite(scored, name)
        confusion[int(cell[LABEL]), int(cell[prediction])] = cell["count"]
    if np.count_nonzero(confusion.sum(axis=1)) < 2:
        raise JobError(
            f"all {confusion.sum()} rows to judge by have one class only.",
            "Bring more rows, or change the dataset's 'split_seed'.",
        )
    rows = int(confusion.sum())
    evaluator = MulticlassClassificationEvaluator(
        labelCol=LABEL, predictionCol=prediction, probabilityCol="probability", eps=1e-300
    )
    vectors = scored.withColumn("probability", array_to_vector(F.col(f"{name}_probability")))
    log_loss = evaluator.evaluate(vectors, {evaluator.metricName: "logLoss"})
    accuracy = evaluator.evaluate(vectors, {evaluator.metricName: "accuracy"})
    deviation = scored.agg(F.stddev_samp(f"{name}_loss")).head()
    metrics = {
        "accuracy": wilson(round(accuracy * rows), rows, confidence),
        "log_loss": mean(log_loss, float(deviation[0]) if deviation else 0.0, rows, confidence),
        **macro(confusion, confidence),
    }
    return Judgement(metrics=metrics, confusion=confusion)


def compare(scored: DataFrame) -> dict[str, int]:
    """On how many of the same rows both models, one, or none was right."""
    right = {name: F.col(f"{name}_prediction") == F.col(LABEL) for name in (CHALLENGER, CHAMPION)}
    cells = (
        scored.groupBy(*(column.alias(name) for name, column in right.items())).count().collect()
    )
    counts = {(cell[CHALLENGER], cell[CHAMPION]): int(cell["count"]) for cell in cells}
    return {
        "both_right": counts.get((True, True), 0),
        "only_challenger": counts.get((True, False), 0),
        "only_champion": counts.get((False, True), 0),
        "both_wrong": counts.get((False, False), 0),
    }


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A row that a model got wrong.

    Attributes:
        label: its class index.
        prediction: the class index predicted.
        probability: that the model gave to its prediction.
        features: float32 [width].
    """

    label: int
    prediction: int
    probability: float
    features: np.ndarray[Any, Any]


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
            label=int(row[LABEL]),
            prediction=int(row["prediction"]),
            probability=float(row["probability"]),
            features=features[row[KEY]],
        )
        for row in rows
    ]


def _not_finite(scored: DataFrame, name: str) -> JobError:
    bad = scored.filter(F.col(f"{name}_prediction") < 0)
    keys = [row[KEY] for row in bad.select(KEY).limit(_EXAMPLES).collect()]
    return JobError(
        f"the {name}'s scores are not finite for {bad.count()} of {scored.count()} rows, such as "
        f"key {', '.join(keys)}.",
        "Check its training: a metric over such scores would mean nothing.",
    )
