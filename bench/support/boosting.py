"""One way to train or to predict with XGBoost, timed in a process of its own.

    python -m support.boosting KIND DATASET SETTINGS

KIND is native, spark or ours. Prints a line of JSON. Each trains twice in the same process, session
start excluded: cold is the first time, warm the second. Each predicts four times; the first one
does not count.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from support.local import local_spark
from trainyard.dataset import FEATURES, LABEL, Dataset

if TYPE_CHECKING:
    import xgboost as xgb
    from pyspark.sql import SparkSession

WORKERS = 2

T = TypeVar("T")


def main() -> None:
    """Train by one kind, and predict by it where the dataset has a test split."""
    kind, directory, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    dataset = Dataset.read(directory)
    if kind == "native":
        print(json.dumps(native(dataset, settings)), flush=True)
        return
    from trainyard.session import spark_session

    local_spark(WORKERS, spark__driver__memory="4g", spark__executorEnv__OMP_WAIT_POLICY="PASSIVE")
    with spark_session("bench") as spark:
        way = {"spark": stock, "ours": ours}[kind]
        print(json.dumps(way(spark, dataset, settings)), flush=True)


def native(dataset: Dataset, settings: dict[str, Any]) -> dict[str, Any]:
    """`xgboost.train` with a thread for each worker of the others, on the same files."""
    import xgboost as xgb

    times, booster = twice(lambda: fit_native(dataset, settings))
    if not dataset.rows("test"):
        return times

    def predict() -> np.ndarray[Any, Any]:
        features, _ = table(dataset, "test")
        return booster.predict(xgb.DMatrix(features, nthread=WORKERS, **kinds(dataset)))

    booster.set_param({"nthread": WORKERS})
    seconds, scores = warm(predict)
    return {**times, "auc": area(dataset, scores), "predict": seconds}


def fit_native(dataset: Dataset, settings: dict[str, Any]) -> xgb.Booster:
    """The trees that `xgboost.train` makes by settings of `train_xgboost`, up to the best round."""
    import xgboost as xgb

    booster_params = settings.get("booster_params", {})
    told = {"max_bin": booster_params.get("max_bin", 256), **kinds(dataset)}

    def matrix(split: str, like: xgb.QuantileDMatrix | None = None) -> xgb.QuantileDMatrix:
        features, labels = table(dataset, split)
        return xgb.QuantileDMatrix(features, labels, ref=like, nthread=WORKERS, **told)

    train = matrix("train")
    evals = [(train, "train")]
    if dataset.rows("validation"):
        evals.append((matrix("validation", train), "validation"))
    params = {
        "objective": "binary:logistic",
        "tree_method": "hist",
        "max_depth": settings["max_depth"],
        "learning_rate": settings.get("learning_rate", 0.3),
        "nthread": WORKERS,
        **booster_params,
    }
    if "metrics" in settings:
        params["eval_metric"] = settings["metrics"]
    booster = xgb.train(
        params,
        train,
        settings["rounds"],
        evals=evals,
        early_stopping_rounds=settings.get("early_stopping_rounds"),
        verbose_eval=False,
    )
    if "early_stopping_rounds" in settings:
        return booster[: booster.best_iteration + 1]
    return booster


def kinds(dataset: Dataset) -> dict[str, Any]:
    """What XGBoost is told of a dataset's features."""
    from trainyard.xgboost.rows import feature_types

    return {"feature_types": feature_types(dataset), "enable_categorical": True}


def stock(spark: SparkSession, dataset: Dataset, settings: dict[str, Any]) -> dict[str, Any]:
    """`xgboost.spark`, as it comes."""
    from xgboost.spark import SparkXGBClassifier

    rows = spark.read.parquet(*dataset.paths("train"))
    classifier = SparkXGBClassifier(
        features_col=FEATURES,
        label_col=LABEL,
        num_workers=WORKERS,
        tree_method="hist",
        max_depth=settings["max_depth"],
        n_estimators=settings["rounds"],
        verbosity=0,
        **settings.get("booster_params", {}),
    )
    times, model = twice(lambda: classifier.fit(rows))
    if not dataset.rows("test"):
        return times
    test = spark.read.parquet(*dataset.paths("test"))

    def predict() -> None:
        scored = model.transform(test).select("probability", "prediction")
        scored.write.format("noop").mode("overwrite").save()

    return {**times, "predict": warm(predict)[0]}


def ours(spark: SparkSession, dataset: Dataset, settings: dict[str, Any]) -> dict[str, Any]:
    """The project's own job, from launch to the model; with the largest worker's memory."""
    import train_xgboost
    from support.ranks import Memory, anonymous_kb
    from trainyard.barrier.engine import LaunchSettings
    from trainyard.barrier.launch import BarrierLauncher
    from trainyard.specs import TrainXGBoost
    from trainyard.xgboost.engine import XGBoostEngine
    from trainyard.xgboost.history import TrainResult
    from trainyard.xgboost.train import train

    def fit() -> tuple[TrainXGBoost, TrainResult, float]:
        run_dir = tempfile.mkdtemp(prefix="bench-")
        spec = TrainXGBoost.from_mapping(
            {
                "run_dir": run_dir,
                "dataset": dataset.directory,
                "model_name": "bench",
                "num_workers": WORKERS,
                **settings,
            }
        )
        engine = XGBoostEngine(start_timeout=60, stall_timeout=120)
        launch = LaunchSettings(run_dir=run_dir, claim=1, start_timeout=60, stall_timeout=120)

        def body() -> tuple[TrainResult, int]:
            before = anonymous_kb()
            with Memory() as memory:
                result = train(spec, dataset, claim=1)
            return result, memory.peak - before

        found = BarrierLauncher(spark.sparkContext, launch, engine).run(body, WORKERS)
        return spec, found[0][0], max(kb for _, kb in found)

    times, (spec, trained, kb) = twice(fit)
    own = dataset.rows("train") / WORKERS * dataset.width * 4
    measured = {**times, "memory": kb * 1024 / own, "memory_mb": kb / 1000}
    if not dataset.rows("test"):
        return measured
    model = train_xgboost.store_model(spec, dataset, trained)
    seconds, files = warm(lambda: predictions(spark, dataset, model.directory))
    return {**measured, "auc": area(dataset, scores_in(dataset, files)), "predict": seconds}


def predictions(spark: SparkSession, dataset: Dataset, model: str) -> str:
    """The directory of what the job `predict` writes for the test split."""
    from predict import predict_rows
    from trainyard.job import Run
    from trainyard.rundir import EventWriter
    from trainyard.specs import Predict

    run_dir = tempfile.mkdtemp(prefix="bench-")
    events = EventWriter(run_dir, claim=1, writer="driver")
    spec = Predict(run_dir=run_dir, source=dataset.directory, split="test", model=model)
    result = predict_rows(spark, spec, Run(directory=run_dir, claim=1, events=events))
    return str(result["outputs"]["predictions"])


def scores_in(dataset: Dataset, directory: str) -> np.ndarray[Any, Any]:
    """The second class's probability, in the order of the test split."""
    import pyarrow.parquet as pq

    found = pq.read_table(directory, columns=["key", "probabilities"])
    both: np.ndarray[Any, Any] = found["probabilities"].combine_chunks().flatten().to_numpy()
    keys = found["key"].to_numpy().astype(np.int64)
    return both[1::2][np.argsort(keys)]


def table(dataset: Dataset, split: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All features and labels of a split, as a person would read them."""
    import pyarrow.parquet as pq

    found = [pq.read_table(path, columns=[FEATURES, LABEL]) for path in dataset.paths(split)]
    features = [part[FEATURES].combine_chunks().flatten().to_numpy() for part in found]
    labels = [part[LABEL].to_numpy() for part in found]
    return np.concatenate(features).reshape(-1, dataset.width), np.concatenate(labels)


def area(dataset: Dataset, scores: np.ndarray[Any, Any]) -> float:
    """Area under the ROC curve of the test split."""
    from trainyard.xgboost.areas import roc_auc

    labels = table(dataset, "test")[1]
    return roc_auc(scores, labels, np.ones(len(labels)))


def twice(work: Callable[[], T]) -> tuple[dict[str, float], T]:
    """The seconds of the first and of the second time, and what the second one gave."""
    times, results = {}, []
    for name in ("cold", "warm"):
        began = time.monotonic()
        results = [work()]
        times[name] = time.monotonic() - began
    return times, results[0]


def warm(work: Callable[[], T]) -> tuple[float, T]:
    """The median of three times after a first one, in seconds, and what the last one gave."""
    result = work()
    times = []
    for _ in range(3):
        began = time.monotonic()
        result = work()
        times.append(time.monotonic() - began)
    return statistics.median(times), result


if __name__ == "__main__":
    main()
