"""The names of sparkdl.xgboost on this project's engine, as a driver program uses them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xgboost as xgb

from trainyard import store
from trainyard.errors import JobError, SettingError
from trainyard.sparkdl.xgboost import (
    XgboostClassifier,
    XgboostClassifierModel,
    XgboostRegressor,
    XgboostRegressorModel,
    scorer,
)
from trainyard.sparkdl.xgboost.params import OLD_NAMES, engine_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 300


def values(classes: int = 2) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, 4)).astype(np.float32)
    score = features[:, 0] - 2 * features[:, 1] + 0.1 * rng.normal(size=ROWS)
    labels = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    return features, labels


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """Rows of two and of three classes, with weights, margins and a validation flag."""
    from pyspark.ml.linalg import DenseVector, VectorUDT
    from pyspark.sql.types import StructType

    features, two = values()
    three = values(3)[1]
    rows = [
        (n, float(two[n]), int(three[n]), 1.0 + n % 3, 0.3 * (n % 2), n % 4 == 0, DenseVector(x))
        for n, x in enumerate(features.astype(float))
    ]
    schema: Any = StructType.fromDDL(
        "id int, label double, kind int, weight double, margin double, held boolean"
    )
    schema.add("features", VectorUDT())
    return spark.createDataFrame(rows, schema).repartition(3).cache()


def natively(labels: Any, rounds: int = 5, **params: Any) -> xgb.Booster:
    features, _ = values()
    extra = {name: params.pop(name) for name in ("weight", "base_margin") if name in params}
    matrix = xgb.DMatrix(features, labels, **extra)
    return xgb.train({"tree_method": "hist", "nthread": 1, **params}, matrix, rounds)


def column(frame: DataFrame, name: str) -> Any:
    rows = [row[name] for row in frame.orderBy("id").collect()]
    return np.stack([value.toArray() if hasattr(value, "toArray") else value for value in rows])


def test_two_classes_are_predicted_as_native_xgboost_does(
    spark: SparkSession, frame: DataFrame
) -> None:
    from pyspark.ml.evaluation import BinaryClassificationEvaluator

    model = XgboostClassifier(n_estimators=5, max_depth=3, weightCol="weight").fit(frame)
    scored = model.transform(frame).cache()
    features, labels = values()
    weights = 1.0 + np.arange(ROWS) % 3
    theirs = natively(labels, objective="binary:logistic", max_depth=3, weight=weights)
    wanted = theirs.predict(xgb.DMatrix(features))
    probability = column(scored, "probability")
    assert np.allclose(probability[:, 1], wanted, atol=1e-4)
    assert np.allclose(probability.sum(axis=1), 1)
    raw = column(scored, "rawPrediction")
    assert np.allclose(raw[:, 1], np.log(wanted / (1 - wanted)), atol=1e-3)
    assert np.array_equal(raw[:, 0], -raw[:, 1])
    assert np.array_equal(column(scored, "prediction"), (wanted > 0.5).astype(float))
    assert BinaryClassificationEvaluator(labelCol="label").evaluate(scored) > 0.9
    used = model.get_booster().get_score(importance_type="gain")
    assert model.get_feature_importances("gain") == used
    assert len(model.history) == 5


def test_more_classes_and_several_workers(spark: SparkSession, frame: DataFrame) -> None:
    classifier = XgboostClassifier(
        labelCol="kind",
        num_workers=spark.sparkContext.defaultParallelism,
        n_estimators=300,
        learning_rate=1.0,  # few rounds until it stops
        validationIndicatorCol="held",
        early_stopping_rounds=2,
        eval_metric=["merror", "mlogloss"],
        probabilityCol="p",
        rawPredictionCol="raw",
        predictionCol="kind_found",
    )
    model = classifier.fit(frame)
    found = model.transform(frame)
    assert {"p", "raw", "kind_found"} <= set(found.columns)
    assert np.array_equal(column(found, "p").argmax(axis=1), column(found, "kind_found"))
    assert (column(found, "kind_found") == values(3)[1]).mean() > 0.9
    assert {"merror", "mlogloss", "validation_merror"} <= set(model.history[0])
    assert model.get_booster().num_boosted_rounds() == model.trees.best < len(model.history)


def test_base_margins_of_several_workers_count(frame: DataFrame) -> None:
    model = XgboostRegressor(
        num_workers=2, n_estimators=3, baseMarginCol="margin", learning_rate=0.1, base_score=0.0
    ).fit(frame)
    assert isinstance(model, XgboostRegressorModel)
    found = column(model.transform(frame), "prediction")
    margins = 0.3 * (np.arange(ROWS) % 2)
    labels = values()[1]
    theirs = natively(labels, 3, eta=0.1, base_margin=margins, base_score=0.0)
    matrix = xgb.DMatrix(values()[0], base_margin=margins)
    assert np.abs(found - theirs.predict(matrix)).mean() < 0.02
    without = natively(labels, 3, eta=0.1, base_score=0.0).predict(xgb.DMatrix(values()[0]))
    assert np.abs(found - without).mean() > 0.05


def test_a_sparse_vectors_zeros_are_missing_with_missing_0(spark: SparkSession) -> None:
    from pyspark.ml.linalg import Vectors

    rng = np.random.default_rng(1)
    rows = []
    for _ in range(200):
        x = float(rng.choice([0.0, 1.0, 2.0]))
        vector = Vectors.sparse(2, {0: x, 1: 1.0}) if x else Vectors.sparse(2, {1: 1.0})
        rows.append((vector, float(x != 1.0)))
    frame = spark.createDataFrame(rows, ["features", "label"])

    def first_split(missing: float) -> dict[str, Any]:
        model = XgboostClassifier(n_estimators=1, max_depth=1, missing=missing).fit(frame)
        return dict(model.get_booster().trees_to_dataframe().iloc[0])

    # As numbers the zeros are below 1 and the twos above it; missing ones join the twos.
    missing, numbers = first_split(0.0), first_split(float("nan"))
    assert missing["Missing"] == missing["No"]
    assert missing["Split"] > 1
    assert numbers["Gain"] < missing["Gain"]


def test_callbacks_are_called_and_may_stop_it(frame: DataFrame) -> None:
    class Stop(xgb.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return epoch == 2

    model = XgboostClassifier(n_estimators=9, callbacks=[Stop()]).fit(frame)
    assert model.get_booster().num_boosted_rounds() == len(model.history) == 3


def test_pipeline_cross_validation_save_and_load(
    spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    regressor = XgboostRegressor(n_estimators=2, missing=-1.0)
    grid = ParamGridBuilder().addGrid(regressor.max_depth, [1, 3]).build()
    pipeline = Pipeline(stages=[regressor])
    evaluator = RegressionEvaluator(labelCol="label")
    validator = CrossValidator(
        estimator=pipeline, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1
    )
    validated = validator.fit(frame)
    best: Any = validated.bestModel
    shallow, deep = validated.avgMetrics
    assert deep < shallow, "each value was trained with"
    assert max(best.stages[0].get_booster().trees_to_dataframe()["Node"]) > 2, "deeper than 1"
    assert regressor.getOrDefault("max_depth") != 3
    best.save(str(tmp_path / "model"))
    loaded: Any = PipelineModel.load(str(tmp_path / "model"))
    assert loaded.stages[0].getMissing() == -1.0
    assert loaded.stages[0].history == best.stages[0].history
    assert loaded.transform(frame).collect() == best.transform(frame).collect()
    pipeline.save(str(tmp_path / "pipeline"))
    again: Any = Pipeline.load(str(tmp_path / "pipeline")).getStages()[0]
    assert (again.getOrDefault("n_estimators"), again.getMissing()) == (2, -1.0)


def test_values_of_numpy_and_tuples_are_taken(spark: SparkSession) -> None:
    given = XgboostClassifier(
        max_depth=np.int64(2),
        max_leaves=np.int64(4),
        subsample=np.float32(0.5),
        monotone_constraints=(1, -1),
        eval_metric=np.array(["auc", "logloss"]),
    )
    settings = engine_settings(given.value)
    assert json.loads(json.dumps(settings)) == {
        **settings,
        "max_depth": 2,
        "metrics": ["auc", "logloss"],
        "booster_params": {"max_leaves": 4, "subsample": 0.5, "monotone_constraints": [1, -1]},
    }
    assert given.getEvalMetric() == ["auc", "logloss"]


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_may_be_none(missing: float | None) -> None:
    booster = natively(values()[1], rounds=1)
    rows = np.full((2, 4), np.nan, np.float32)
    [found] = scorer.regressor(missing)(booster, [rows])
    assert np.allclose(found, booster.predict(xgb.DMatrix(rows)))


def test_every_keyword_of_xgboosts_is_known(spark: SparkSession) -> None:
    for theirs in (xgb.XGBClassifier, xgb.XGBRegressor):
        names = set(inspect.signature(theirs.__init__).parameters) - {"self"}
        names |= set(xgb.XGBModel().get_params())
        names |= set(inspect.signature(theirs.fit).parameters) - {"self", "X", "y"}
        assert names <= set(XgboostClassifier.table) | set(OLD_NAMES)


@pytest.mark.parametrize("name", sorted(OLD_NAMES))
def test_an_old_name_says_what_to_use(spark: SparkSession, name: str) -> None:
    with pytest.raises(SettingError, match=f"{name!r} is 1: XgboostClassifier has no such") as told:
        XgboostClassifier(**{name: 1})
    assert told.value.fix


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_dept": 3}, "Did you mean 'max_depth'"),
        ({"tree_method": "exact"}, "Use hist"),
        ({"subsample": 2}, "'subsample' cannot be 2"),
        ({"objective": "rank:pairwise"}, "ranking is not there yet"),
        ({"early_stopping_rounds": 2}, "Set validationIndicatorCol"),
        ({"use_gpu": True}, "Spark gave this worker's task no GPU"),
        ({"featuresCol": "feature"}, "Did you mean 'features'"),
        ({"labelCol": "margin"}, "'margin' is no whole number: 150"),
        ({"baseMarginCol": "features"}, "a row has 4 margins"),
        ({"use_external_storage": True}, "one quantised copy"),
        ({"eval_metric": "aucc"}, "XGBoost has no metric 'aucc'"),
        ({"eval_metric": lambda labels, scores: 0.0}, "names of XGBoost's metrics"),
        ({"callbacks": [3]}, "'callbacks' is 3: it is no xgboost.callback.TrainingCallback"),
        ({"num_workers": 0}, "must be 1 or more"),
    ],
)
def test_what_cannot_be_is_refused(frame: DataFrame, given: dict[str, Any], said: str) -> None:
    with pytest.raises((JobError, TypeError), match=said):
        XgboostClassifier(**given).fit(frame)


def test_too_many_workers_are_refused_before_rows_are_written(
    frame: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("trainyard.sparkdl.xgboost.fit._dataset")
    with pytest.raises(SettingError, match=r"'num_workers' is 3: .* has 2 slots"):
        XgboostClassifier(num_workers=3).fit(frame)


def test_labels_are_0_to_k(spark: SparkSession, frame: DataFrame) -> None:
    shifted = frame.withColumn("label", frame.label * 7 - 3)
    with pytest.raises(JobError, match="labels -3, 4, and not 0 to k-1"):
        XgboostClassifier().fit(shifted)


def test_a_cluster_needs_a_place_for_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from trainyard.sparkdl.xgboost import fit

    monkeypatch.delenv("TRAINYARD_STAGING", raising=False)
    context: Any = SimpleNamespace(master="spark://h:7077", getConf=dict)
    with pytest.raises(SettingError, match=r"spark\.trainyard\.staging"):
        fit._place(context)
    context.getConf = lambda: {fit.PLACE: "s3://bucket/x"}
    assert fit._place(context).startswith("s3://bucket/x/trainyard-fit-")


def test_nothing_is_left_of_a_fit(
    frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_STAGING", str(tmp_path))
    assert isinstance(XgboostClassifier(n_estimators=1).fit(frame), XgboostClassifierModel)
    with pytest.raises(JobError, match="Use hist"):
        XgboostClassifier(tree_method="exact").fit(frame)
    assert store.list_names(str(tmp_path)) == []


def test_a_model_is_read_once_in_a_process_and_scores_batches() -> None:
    import pyarrow as pa

    from trainyard.ml import scorer as batches

    class Broadcast:
        value = b"model"

    read: list[bytes] = []
    sizes: list[int] = []

    def load(data: bytes) -> str:
        read.append(data)
        return "it"

    def predict(model: str, inputs: list[Any]) -> list[Any]:
        sizes.append(len(inputs[0]))
        return [inputs[0][:, 0], inputs[0] * 2]

    shipped: Any = batches.Shipped(Broadcast(), load)  # type: ignore[arg-type]
    scores = batches.scorer(shipped, [batches.Input(name="x", width=2)], predict)
    rows = pa.array(np.arange(5000.0).reshape(2500, 2).tolist())
    batch = pa.StructArray.from_arrays([rows], ["x"])
    [found] = list(scores(iter([batch])))
    assert read == [b"model"]
    assert sizes == [512] * 4 + [452]
    assert found.field(0).to_pylist() == np.arange(0.0, 5000, 2).tolist()
    assert found.field(1)[2499].as_py() == [9996, 9998]
    [empty] = list(scores(iter([batch.slice(0, 0)])))
    assert len(empty) == 0
