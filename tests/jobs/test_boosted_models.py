"""What the job train_xgboost stores, in every other job, in plain XGBoost and in MLflow."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import xgboost as xgb
from boosted import spec_of
from job_runs import run_in
from prepared_tables import GAPPY, all_rows, gappy_flights, prepared

import train_xgboost
from evaluate import evaluate_model
from predict import predict_rows
from train_xgboost import launch_in
from trainyard import registry
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.models import StoredModel, resolve_model
from trainyard.scoring import Scorer
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Evaluate, Predict, TrainXGBoost
from trainyard.xgboost.history import TrainResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


Trained = tuple[Path, Dataset, dict[str, Any]]


@pytest.fixture(scope="module", params=["late", "minutes"])
def trained(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Trained:
    """A whole job's result on a table with gaps, categories and base margins, for each task."""
    label = str(request.param)
    root = tmp_path_factory.mktemp(label)
    task = "regression" if label == "minutes" else "classification"
    more = {"label": label, "task": task, "base_margin": "start"}
    dataset, _ = prepared(spark, root, gappy_flights(), **{**GAPPY, **more})
    return root, dataset, whole_job(spark, root / "train", dataset, database)


def whole_job(
    spark: SparkSession, run_dir: Path, dataset: Dataset, database: str
) -> dict[str, Any]:
    run_dir.mkdir()

    def launch(spec: TrainXGBoost, dataset: Dataset, run: Any) -> TrainResult:
        return launch_in(spark.sparkContext, spec, dataset, run)

    spec = spec_of(run_dir, dataset, num_workers=2, explained_rows=50, early_stopping_rounds=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(registry.TRACKING_URI, database)
        patch.setattr(train_xgboost, "launch", launch)
        return train_xgboost.work(spec, run_in(run_dir))


def predictions(spark: SparkSession, run_dir: Path, source: str, model: str) -> dict[str, Any]:
    spec = Predict(run_dir=str(run_dir), source=source, model=model)
    with unwrapped():
        result = predict_rows(spark, spec, run_in(run_dir))
    rows = pq.read_table(result["outputs"]["predictions"]).to_pylist()
    return {row["key"]: row.get("probabilities") or row["prediction"] for row in rows}


def test_every_job_predicts_the_same_as_plain_xgboost_and_mlflow(
    spark: SparkSession,
    trained: Trained,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, dataset, result = trained
    monkeypatch.setenv(registry.TRACKING_URI, database)
    ours = predictions(spark, tmp_path / "1", dataset.directory, result["outputs"]["model"])
    uri = result["outputs"]["model_uri"]
    raw = predictions(spark, tmp_path / "2", str(root / "source.parquet"), uri)
    assert raw == ours
    assert len(ours) == 400

    import mlflow
    import mlflow.xgboost

    mlflow.set_tracking_uri(database)
    plain = xgb.Booster()
    plain.load_model(root / "train" / "model" / "model.ubj")
    rows = all_rows(dataset)
    features = np.array([rows[key]["features"] for key in ours], np.float32)
    margins = np.array([rows[key]["margin"] for key in ours])
    assert np.isnan(features[:, 0]).any()
    assert np.isnan(features[:, 2]).any()
    matrix = xgb.DMatrix(
        features,
        base_margin=margins,
        feature_types=["q", "q", "c"],
        enable_categorical=True,
    )
    values = np.array(list(ours.values()))
    told = values if values.ndim == 1 else values[:, 1]
    for booster in (plain, mlflow.xgboost.load_model(uri)):
        assert np.allclose(booster.predict(matrix), told, atol=1e-6)
        assert booster.num_boosted_rounds() == result["metrics"]["best_round"]


def test_evaluate_judges_it_beside_a_champion(
    spark: SparkSession,
    trained: Trained,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, dataset, result = trained
    monkeypatch.setenv(registry.TRACKING_URI, database)
    spec = Evaluate(
        run_dir=str(tmp_path),
        dataset=dataset.directory,
        model=result["outputs"]["model_uri"],
        champion="models:/test@challenger",
        bootstrap_samples=100,
        split="validation",
    )
    if dataset.task == "regression":
        judged = evaluate_model(spark, spec, run_in(tmp_path))
        told = result["metrics"]["validation_rmse"]
        assert judged["metrics"]["rmse"]["value"] == pytest.approx(told, rel=1e-4)
        return
    spec = Evaluate.from_mapping(spec.to_mapping() | {"champion": spec.model})
    judged = evaluate_model(spark, spec, run_in(tmp_path))
    told = result["metrics"]["validation_logloss"]
    assert judged["metrics"]["log_loss"]["value"] == pytest.approx(told, rel=1e-4)
    assert judged["comparison"]["only_champion"] == 0


def test_what_mlflow_holds(
    trained: Trained, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, dataset, result = trained
    monkeypatch.setenv(registry.TRACKING_URI, database)
    client, run_id = registry.client(), result["model"]["mlflow_run_id"]
    run = client.get_run(run_id)
    assert run.data.params["best_round"] == str(result["metrics"]["best_round"])
    assert run.data.params["rounds"] == "12"
    metric = "validation_rmse" if dataset.task == "regression" else "validation_logloss"
    assert len(client.get_metric_history(run_id, metric)) == result["metrics"]["rounds"]
    kept = {file.path for file in client.list_artifacts(run_id, "explanation")}
    names = ("importances.csv", "importances.png", "shap.parquet", "shap.png")
    assert kept == {f"explanation/{name}" for name in names}
    assert all((root / "train" / "report" / name).exists() for name in names)
    model = {file.path for file in client.list_artifacts(run_id, "model")}
    assert {"model/MLmodel", "model/model.ubj", "model/meta.json"} <= model
    directory, identity = resolve_model(result["outputs"]["model_uri"])
    stored = StoredModel.read(directory)
    assert stored.meta.engine == "xgboost"
    assert stored.meta.weights_sha256 == result["fingerprints"]["model"]
    assert identity.version == result["model"]["version"]
    assert set(result["features"]) == {"dep.delay [min]", "features", "carrier"}


def test_a_changed_file_is_not_loaded(trained: Trained, tmp_path: Path) -> None:
    root, _, _ = trained
    for name in ("meta.json", "model.ubj"):
        (tmp_path / name).write_bytes((root / "train" / "model" / name).read_bytes())
    found = StoredModel.read(str(tmp_path))
    assert Scorer(found, 8).meta == found.meta
    (tmp_path / "model.ubj").write_bytes(found.weights[:-1] + b"?")
    with pytest.raises(JobError, match="does not have the sha256"):
        StoredModel.read(str(tmp_path))
    meta = json.loads((tmp_path / "meta.json").read_text())
    for edited, problem in (
        ({**meta, "engine": "pickle"}, "no engine 'pickle'"),
        ({**meta, "task": "ranking"}, "no task 'ranking'"),
        ({**meta, "missing": "0"}, "missing is a number, not '0'"),
        ({**meta, "base_margin": 5}, "base_margin is a column's name"),
        (None, "it holds a NoneType"),
    ):
        (tmp_path / "meta.json").write_text(json.dumps(edited))
        with pytest.raises(JobError, match=problem):
            StoredModel.read(str(tmp_path))


def test_a_dataset_without_its_base_margins_is_refused(trained: Trained) -> None:
    root, dataset, _ = trained
    meta = StoredModel.read(str(root / "train" / "model")).meta
    meta.check_dataset(dataset)
    with pytest.raises(JobError, match="wants base_margin start"):
        meta.check_dataset(dataclasses.replace(dataset, base_margin=None))
