"""An evaluation says what scikit-learn would, on the same rows for both models, or fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from job_runs import run_in
from made_datasets import write_dataset
from PIL import Image
from sklearn.metrics import accuracy_score, log_loss, precision_recall_fscore_support
from tiny_models import store_linear

from evaluate import evaluate_model
from trainyard import registry
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.models import load_model
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Evaluate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]])
WORSE = torch.tensor([[2.0, -2.0], [0.0, 1.0], [-2.0, 0.0]])


def rows(count: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    centres = np.array([[1, 0], [0, 1], [-1, -1]])
    features = centres[labels] + rng.normal(scale=0.8, size=(count, 2))
    return features.astype(np.float32), labels.astype(np.int64)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    splits = {"train": rows(50, 0), "test": rows(500, 1)}
    return write_dataset(
        tmp_path_factory.mktemp("data"), splits, classes=3, files={"test": [[200, 100], [200]]}
    )


@pytest.fixture(scope="module")
def models(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("models")
    weights = {"good": GOOD, "worse": WORSE}
    return {name: store_linear(root / name, dataset, weight) for name, weight in weights.items()}


def evaluated(
    spark: SparkSession, run_dir: Path, dataset: Dataset, **settings: Any
) -> dict[str, Any]:
    spec = Evaluate(run_dir=str(run_dir), dataset=dataset.directory, **settings)
    with unwrapped():
        return evaluate_model(spark, spec, run_in(run_dir))


def probabilities(model: str, features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    network, _ = load_model(model)
    with torch.inference_mode():
        return network(torch.tensor(features)).double().softmax(1).numpy()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def result(
    spark: SparkSession,
    dataset: Dataset,
    models: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    run_dir = tmp_path_factory.mktemp("run")
    settings = {"model": models["good"], "champion": models["worse"], "batch_size": 64}
    return evaluated(spark, run_dir, dataset, **settings)


def test_metrics_are_scikit_learns(result: dict[str, Any], models: dict[str, str]) -> None:
    features, labels = rows(500, 1)
    for name, metrics in (("good", result["metrics"]), ("worse", result["champion"]["metrics"])):
        scores = probabilities(models[name], features)
        predictions = scores.argmax(1)
        precision, recall, f1, _ = precision_recall_fscore_support(
            labels, predictions, average="macro"
        )
        expected = {
            "accuracy": accuracy_score(labels, predictions),
            "log_loss": log_loss(labels, scores),
            "macro_precision": precision,
            "macro_recall": recall,
            "macro_f1": f1,
        }
        assert {n: m["value"] for n, m in metrics.items()} == pytest.approx(expected, abs=1e-6)
        assert all(m["low"] < m["value"] < m["high"] for m in metrics.values())


def test_both_models_are_compared_on_the_same_rows(
    result: dict[str, Any], models: dict[str, str]
) -> None:
    features, labels = rows(500, 1)
    good, worse = (
        probabilities(models[n], features).argmax(1) == labels for n in ("good", "worse")
    )
    assert result["comparison"] == {
        "both_right": (good & worse).sum(),
        "only_challenger": (good & ~worse).sum(),
        "only_champion": (~good & worse).sum(),
        "both_wrong": (~good & ~worse).sum(),
    }
    assert result["rows"] == {"test": 500}


def test_the_report(result: dict[str, Any]) -> None:
    report = Path(result["outputs"]["report"])
    assert {path.name for path in report.iterdir()} == {"metrics.json", "confusion.png"}
    assert json.loads((report / "metrics.json").read_text())["metrics"] == result["metrics"]
    with Image.open(report / "confusion.png") as picture:
        assert min(picture.size) > 200


def test_a_model_against_itself(
    spark: SparkSession, dataset: Dataset, models: dict[str, str], tmp_path: Path
) -> None:
    settings = {"model": models["good"], "champion": models["good"]}
    found = evaluated(spark, tmp_path, dataset, **settings)
    assert found["metrics"] == found["champion"]["metrics"]
    assert found["comparison"]["only_champion"] == found["comparison"]["only_challenger"] == 0


def test_no_champion_yet_and_images(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(registry.TRACKING_URI, f"sqlite:///{tmp_path}/mlflow.db")
    rng = np.random.default_rng(0)
    features, labels = rng.random((40, 16), np.float32), rng.integers(0, 3, 40)
    dataset = write_dataset(tmp_path / "data", {"validation": (features, labels)}, classes=3)
    weight = torch.tensor(rng.normal(size=(3, 16)), dtype=torch.float32)
    model = store_linear(tmp_path / "model", dataset, weight, input_shape=(1, 4, 4))
    mlflow = registry.client()
    run_id = mlflow.create_run(
        mlflow.create_experiment("e", str(tmp_path / "artifacts"))
    ).info.run_id
    found = evaluated(
        spark,
        tmp_path / "run",
        dataset,
        model=model,
        champion="models:/digits@champion",
        split="validation",
        mlflow_run_id=run_id,
    )
    assert (found["champion"], found["comparison"]) == (None, None)
    logged = mlflow.get_run(run_id).data.metrics
    assert logged["validation_accuracy"] == pytest.approx(found["metrics"]["accuracy"]["value"])
    names = {file.path for file in mlflow.list_artifacts(run_id, "report/validation")}
    assert names == {
        f"report/validation/{name}" for name in ("confusion.png", "metrics.json", "mistakes.png")
    }


class TestErrors:
    def test_an_empty_split(
        self, spark: SparkSession, dataset: Dataset, models: dict[str, str], tmp_path: Path
    ) -> None:
        with pytest.raises(JobError, match=r"the validation split of '.*' has 0 rows"):
            evaluated(spark, tmp_path, dataset, model=models["good"], split="validation")

    def test_one_class(self, spark: SparkSession, tmp_path: Path) -> None:
        split = (np.ones((5, 2), np.float32), np.ones(5, np.int64))
        dataset = write_dataset(tmp_path / "data", {"test": split}, classes=3)
        model = store_linear(tmp_path / "model", dataset, GOOD)
        with pytest.raises(JobError, match="all 5 rows to judge by have one class only"):
            evaluated(spark, tmp_path / "run", dataset, model=model)

    def test_scores_that_are_not_finite(self, spark: SparkSession, tmp_path: Path) -> None:
        features, labels = rows(30, 2)
        features[[3, 4], 0] = 101
        dataset = write_dataset(tmp_path / "data", {"test": (features, labels)}, classes=3)
        model = store_linear(tmp_path / "model", dataset, GOOD, network="tiny_models:Broken")
        with pytest.raises(
            JobError,
            match="the challenger's scores are not finite for 2 of 30 rows, such as key 3, 4",
        ):
            evaluated(spark, tmp_path / "run", dataset, model=model)
        assert not (tmp_path / "run" / "report").exists()

    def test_a_model_of_another_dataset(
        self, spark: SparkSession, dataset: Dataset, tmp_path: Path
    ) -> None:
        model = store_linear(tmp_path / "model", dataset, GOOD, classes=("a", "b", "c"))
        with pytest.raises(JobError, match="the model wants classes"):
            evaluated(spark, tmp_path / "run", dataset, model=model)

    @pytest.mark.parametrize("damage", ["gone", "truncated", "other"])
    def test_files_that_no_longer_match(
        self, spark: SparkSession, tmp_path: Path, damage: str
    ) -> None:
        dataset = write_dataset(tmp_path / "data", {"test": rows(30, 2)}, classes=3)
        model = store_linear(tmp_path / "model", dataset, GOOD)
        path = Path(dataset.paths("test")[0])
        if damage == "gone":
            path.unlink()
        elif damage == "truncated":
            path.write_bytes(path.read_bytes()[:-20])
        else:
            other = write_dataset(tmp_path / "other", {"test": rows(31, 2)}, classes=3)
            path.write_bytes(Path(other.paths("test")[0]).read_bytes())
        with pytest.raises(JobError, match=r"row group 0 of '.*' is not as dataset.json describes"):
            evaluated(spark, tmp_path / "run", dataset, model=model)

    def test_a_champion_that_cannot_be_read(
        self, spark: SparkSession, dataset: Dataset, models: dict[str, str], tmp_path: Path
    ) -> None:
        with pytest.raises(JobError, match=r"there is no meta\.json"):
            evaluated(spark, tmp_path, dataset, model=models["good"], champion=str(tmp_path / "x"))
