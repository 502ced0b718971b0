"""Scores a dataset's split with one model or two on the same rows, and judges each.

Values over all rows come from Spark's evaluators where they have the metric. For the intervals, the
slices and what Spark has not, the rows' scores come to the driver: at most `bootstrap_rows`, chosen
by a hash of their keys, so that memory does not grow with the split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.ml.evaluation import (
    BinaryClassificationEvaluator,
    MulticlassClassificationEvaluator,
    RegressionEvaluator,
)
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from trainyard.dataset import FEATURES, KEEP, KEY, LABEL, MARGIN, REGRESSION, Dataset
from trainyard.errors import JobError
from trainyard.inputs import input_of, inputs
from trainyard.metrics import Classified, Measured, Regressed, macro, sums
from trainyard.models import StoredModel
from trainyard.parts import UNITS, cut, lists, matrix, read_units, schema_of, units
from trainyard.scoring import Matrix, Scorer, Shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHALLENGER = "challenger"
CHAMPION = "champion"

_EXAMPLES = 3
_BROKEN = -1.0
_MOST_BYTES = 512 * 1024**2
"""Of scores at the driver, whatever `bootstrap_rows` allows."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The rows to judge by.

    Attributes:
        name: of the split.
        run_dir: the run directory, to which preprocessing is copied.
        batch_size: rows scored at a time.
    """

    dataset: Dataset
    name: str
    run_dir: str
    batch_size: int


def score(spark: SparkSession, split: Split, models: Mapping[str, StoredModel]) -> DataFrame:
    """A split's rows as `key`, `label`, `keep`, and what each model says of them.

    For a classification that is `NAME_prediction` (a class index as a double, or -1 where the
    scores are not finite), `NAME_probability` and `NAME_loss`; for a regression `NAME_prediction`.

    Raises:
        JobError: on use of the frame: a label is null, not finite, or no class.
    """
    dataset = split.dataset
    schema = schema_of(dataset, KEY, FEATURES, LABEL, MARGIN, KEEP)
    says = _regression_scores if dataset.task == REGRESSION else _class_scores
    columns = "{n}_prediction double"
    if dataset.task != REGRESSION:
        columns += ", {n}_probability array<double>, {n}_loss double"
    described = ", ".join(columns.format(n=name) for name in models)

    shipped = {name: Shipped(spark, model, split.batch_size) for name, model in models.items()}
    columns_of = {name: input_of(dataset, name, model) for name, model in models.items()}
    as_stored = set(columns_of.values()) == {FEATURES}

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scorers = {name: model.scorer() for name, model in shipped.items()}
        for batch in read_units(batches, schema) if as_stored else batches:
            labels = _labels(batch, dataset, split.name)
            kept = (
                batch.column(KEEP) if dataset.keep else pa.nulls(len(labels), pa.list_(pa.string()))
            )
            scored: dict[str, Any] = {
                KEY: batch.column(KEY),
                LABEL: labels.astype(np.float64),
                KEEP: kept,
            }
            for name, scorer in scorers.items():
                features = matrix(batch.column(columns_of[name]), scorer.meta.width)
                margins = None
                if scorer.meta.base_margin is not None:
                    margins = matrix(batch.column(MARGIN), dataset.margins)
                said = says(scorer, features, margins, labels)
                scored |= {f"{name}_{column}": values for column, values in said.items()}
            yield pa.record_batch(scored)

    if as_stored:
        frame = spark.createDataFrame(units(dataset, split.name), UNITS)
    else:
        parts = cut(dataset, [split.name], spark.sparkContext.defaultParallelism)
        frame = inputs(spark, dataset, parts, models, split.run_dir)
    return frame.mapInArrow(
        work, f"{KEY} string, {LABEL} double, {KEEP} array<string>, {described}"
    )


def _class_scores(
    scorer: Scorer, features: Matrix, margins: Matrix | None, labels: Matrix
) -> dict[str, Any]:
    logs = scorer.log_probabilities(features, margins)
    finite = np.isfinite(logs.sum(axis=1))
    return {
        "prediction": np.where(finite, logs.argmax(axis=1).astype(np.float64), _BROKEN),
        "probability": lists(np.exp(logs)),
        "loss": -logs[np.arange(len(labels)), labels],
    }


def _regression_scores(
    scorer: Scorer, features: Matrix, margins: Matrix | None, labels: Matrix
) -> dict[str, Any]:
    return {"prediction": scorer.values(features, margins)}


def _labels(batch: pa.RecordBatch, dataset: Dataset, split: str) -> np.ndarray[Any, Any]:
    labels = batch.column(LABEL)
    found: np.ndarray[Any, Any] = labels.fill_null(-1).to_numpy(zero_copy_only=False)
    bad = labels.is_null().to_numpy(zero_copy_only=False)
    problem = "are null"
    if dataset.task == REGRESSION:
        bad, problem = bad | ~np.isfinite(found), "are null or not finite"
    elif not bad.any():
        bad = (found < 0) | (found >= len(dataset.classes))
        problem = f"are no index of one of the {len(dataset.classes)} classes"
    if bad.any():
        keys = batch.column(KEY).filter(pa.array(bad)).slice(0, _EXAMPLES).to_pylist()
        raise JobError(
            f"labels of the {split} split of {dataset.directory!r} {problem}, such as of key "
            f"{', '.join(map(str, keys))}.",
            "Run the prepare job again.",
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is known of the scored rows.

    Attributes:
        exact: metrics of each model over all rows.
        models: of each model, the rows that were brought here, in the order of a hash of the key.
        keep: their values of the kept columns [rows][columns].
        rows: all rows.
        confusion: of each model, rows by (label, prediction); empty for a regression.
    """

    exact: dict[str, dict[str, float]]
    models: dict[str, Measured]
    keep: list[list[str | None]]
    rows: int
    confusion: dict[str, dict[tuple[int, int], int]]

    @property
    def share(self) -> float:
        """The share of the rows that was brought here."""
        return next(iter(self.models.values())).rows / self.rows


def judge(scored: DataFrame, dataset: Dataset, names: list[str], most_rows: int) -> Judged:
    """Judge models by the rows that they scored.

    Raises:
        JobError: the rows have one class only, or a score is not finite.
    """
    regression = dataset.task == REGRESSION
    for name in names:
        _check_finite(scored, name)
    rows = scored.count()
    confusion = {} if regression else {name: _confusion(scored, name) for name in names}
    if not regression:
        _check_classes(confusion[names[0]], dataset, rows)
    exact = {
        name: _regression_values(scored, name)
        if regression
        else _class_values(scored, name, confusion[name], len(dataset.classes))
        for name in names
    }
    columns = [LABEL, KEEP, *(c for c in scored.columns if c.split("_")[0] in names)]
    each = 8 * (2 + (2 + len(dataset.classes)) * len(names))
    limit = max(1000, min(most_rows, _MOST_BYTES // each))
    brought = scored.orderBy(F.xxhash64(KEY), KEY).limit(limit).select(*columns).toArrow()
    return Judged(
        exact=exact,
        models={name: _measured(brought, name, dataset) for name in names},
        keep=brought.column(KEEP).to_pylist() if dataset.keep else [],
        rows=rows,
        confusion=confusion,
    )


def _measured(brought: pa.Table, name: str, dataset: Dataset) -> Measured:
    labels = brought.column(LABEL).to_numpy()
    if dataset.task == REGRESSION:
        return Regressed(labels, brought.column(f"{name}_prediction").to_numpy())
    probabilities = brought.column(f"{name}_probability").combine_chunks().flatten().to_numpy()
    return Classified(
        labels.astype(np.int64),
        probabilities.reshape(-1, len(dataset.classes)),
        brought.column(f"{name}_loss").to_numpy(),
    )


def _confusion(scored: DataFrame, name: str) -> dict[tuple[int, int], int]:
    cells = scored.groupBy(LABEL, f"{name}_prediction").count().collect()
    return {(int(cell[0]), int(cell[1])): int(cell[2]) for cell in cells}


def _class_values(
    scored: DataFrame, name: str, confusion: dict[tuple[int, int], int], classes: int
) -> dict[str, float]:
    vectors = scored.withColumn("probability", array_to_vector(F.col(f"{name}_probability")))
    evaluator = MulticlassClassificationEvaluator(
        labelCol=LABEL,
        predictionCol=f"{name}_prediction",
        probabilityCol="probability",
        metricLabel=1.0,
        eps=1e-300,
    )
    wanted = {"accuracy": "accuracy", "log_loss": "logLoss"}
    if classes == 2:
        wanted |= {
            "precision": "precisionByLabel",
            "recall": "recallByLabel",
            "f1": "fMeasureByLabel",
        }
    values = {
        metric: float(evaluator.evaluate(vectors, {evaluator.metricName: spark_name}))
        for metric, spark_name in wanted.items()
    }
    if classes == 2:
        # 0 bins: no down-sampling of the thresholds.
        areas = BinaryClassificationEvaluator(
            labelCol=LABEL, rawPredictionCol="probability", numBins=0
        )
        for metric, spark_name in (("roc_auc", "areaUnderROC"), ("pr_auc", "areaUnderPR")):
            values[metric] = float(areas.evaluate(vectors, {areas.metricName: spark_name}))
    counts = np.array([[*cell, count] for cell, count in confusion.items()], np.int64)
    labels, predictions, rows = counts.T
    return values | macro(
        sums(labels, rows * (labels == predictions), classes),
        sums(labels, rows, classes),
        sums(predictions, rows, classes),
    )


def _regression_values(scored: DataFrame, name: str) -> dict[str, float]:
    evaluator = RegressionEvaluator(labelCol=LABEL, predictionCol=f"{name}_prediction")
    metrics = ("rmse", "mse", "mae", "r2")
    return {m: float(evaluator.evaluate(scored, {evaluator.metricName: m})) for m in metrics}


def _check_classes(confusion: dict[tuple[int, int], int], dataset: Dataset, rows: int) -> None:
    present = {label for label, _ in confusion}
    if len(present) < 2:
        raise JobError(
            f"all {rows} rows to judge by have one class only, {dataset.classes[present.pop()]!r}.",
            "Bring more rows, or change the dataset's 'split_seed'.",
        )


def _check_finite(scored: DataFrame, name: str) -> None:
    prediction = F.col(f"{name}_prediction")
    finite = ~F.isnan(prediction) & (F.abs(prediction) < float("inf"))
    is_class = f"{name}_probability" in scored.columns
    bad = scored.filter(prediction == _BROKEN if is_class else ~finite)
    keys = [row[KEY] for row in bad.select(KEY).orderBy(KEY).limit(_EXAMPLES).collect()]
    if keys:
        raise JobError(
            f"the {name}'s scores are not finite for {bad.count()} of {scored.count()} rows, such "
            f"as key {', '.join(keys)}.",
            "Check its training: a metric over such scores would mean nothing.",
        )


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
