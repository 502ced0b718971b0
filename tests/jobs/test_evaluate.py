"""An evaluation says what scikit-learn would, on the same rows for both models, or fails."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from job_runs import run_in
from made_datasets import write_dataset
from PIL import Image
from sklearn import metrics as sk
from test_metrics import trapezoid
from tiny_models import store_linear

from evaluate import evaluate_model
from trainyard import registry
from trainyard.dataset import Dataset
from trainyard.errors import JobError, SettingError
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
        precision, recall, f1, _ = sk.precision_recall_fscore_support(
            labels, predictions, average="macro"
        )
        expected = {
            "accuracy": sk.accuracy_score(labels, predictions),
            "log_loss": sk.log_loss(labels, scores),
            "macro_precision": precision,
            "macro_recall": recall,
            "macro_f1": f1,
            "roc_auc": sk.roc_auc_score(labels, scores, multi_class="ovr"),
            "pr_auc": np.mean([trapezoid(labels == c, scores[:, c]) for c in range(3)]),
            "brier": ((scores - np.eye(3)[labels]) ** 2).sum(axis=1).mean(),
        }
        found = {n: m["value"] for n, m in metrics.items()}
        assert found.pop("calibration_error") < 0.5
        assert found == pytest.approx(expected, abs=1e-6)
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
    names = {"metrics.json", "charts.json", "confusion.png", "calibration.png", "curves.png"}
    assert {path.name for path in report.iterdir()} == names
    assert json.loads((report / "metrics.json").read_text())["metrics"] == result["metrics"]
    for path in report.glob("*.png"):
        with Image.open(path) as picture:
            assert min(picture.size) > 200


def test_the_figures_of_its_charts(result: dict[str, Any], models: dict[str, str]) -> None:
    features, labels = rows(500, 1)
    scores = probabilities(models["good"], features)
    charts = json.loads((Path(result["outputs"]["report"]) / "charts.json").read_text())
    assert charts["confusion"] == sk.confusion_matrix(labels, scores.argmax(1)).tolist()
    for c, line in enumerate(charts["curves"]):
        area = sk.roc_auc_score(labels == c, scores[:, c])
        assert line["roc"]["area"] == pytest.approx(area)
        # What is drawn has the area that is said, but for the points left out.
        x, y = (np.array(line["roc"][axis]) for axis in "xy")
        assert len(x) <= 202
        assert np.trapezoid(y, x) == pytest.approx(area, abs=0.01)
    bins = charts["calibration"]["challenger"]
    assert sum(bins["rows"]) == 500
    shown = charts["mistakes"]["rows"]
    sure = [row["probability"] for row in shown]
    assert sure == sorted(sure, reverse=True)
    for row in shown:
        at = int(row["key"])
        assert (int(row["label"]), int(row["prediction"])) == (labels[at], scores[at].argmax())


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
        f"report/validation/{name}.png"
        for name in ("confusion", "mistakes", "calibration", "curves")
    } | {"report/validation/metrics.json", "report/validation/charts.json"}
    charts = json.loads((tmp_path / "run" / "report" / "charts.json").read_text())
    first = charts["mistakes"]["rows"][0]
    pixels = np.frombuffer(base64.b64decode(first["pixels"]), np.uint8)
    image = features[int(first["key"])]
    scaled = (image - image.min()) / (image.max() - image.min()) * 255
    assert charts["mistakes"]["shape"] == [1, 4, 4]
    np.testing.assert_allclose(pixels, scaled, atol=0.51)


def test_two_classes_are_judged_as_spark_and_scikit_learn_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    features, labels = rows(400, 5)
    labels = (labels == 1).astype(np.int64)
    shops = ["north" if i % 4 else None for i in range(400)]
    dataset = write_dataset(
        tmp_path / "data", {"test": (features, labels)}, classes=2, kept={"shop": shops}
    )
    model = store_linear(tmp_path / "model", dataset, GOOD[:2])
    worse = store_linear(tmp_path / "worse", dataset, WORSE[[2, 1]])
    settings = {"model": model, "champion": worse, "slices": ("shop",)}
    found = evaluated(spark, tmp_path / "run", dataset, **settings)
    values = {name: metric["value"] for name, metric in found["metrics"].items()}
    scores = probabilities(model, features)
    predictions = scores.argmax(1)
    assert values["precision"] == pytest.approx(sk.precision_score(labels, predictions))
    assert values["recall"] == pytest.approx(sk.recall_score(labels, predictions))
    assert values["f1"] == pytest.approx(sk.f1_score(labels, predictions))
    assert values["roc_auc"] == pytest.approx(sk.roc_auc_score(labels, scores[:, 1]))
    assert values["pr_auc"] == pytest.approx(trapezoid(labels, scores[:, 1]))
    assert values["brier"] == pytest.approx(sk.brier_score_loss(labels, scores[:, 1]))

    difference = found["differences"]["roc_auc"]
    champion = found["champion"]["metrics"]["roc_auc"]["value"]
    assert difference["value"] == pytest.approx(values["roc_auc"] - champion)
    assert 0 < difference["low"] < difference["value"] < difference["high"]

    north = np.array([shop is not None for shop in shops])
    slices = found["slices"]["shop"]
    assert {name: part["rows"] for name, part in slices.items()} == {"north": 300, "(null)": 100}
    for name, rows_of in (("north", north), ("(null)", ~north)):
        metrics = slices[name]["metrics"]
        assert metrics["accuracy"] == pytest.approx((predictions == labels)[rows_of].mean())
        assert metrics["roc_auc"] == pytest.approx(
            sk.roc_auc_score(labels[rows_of], scores[rows_of, 1])
        )
    report = Path(found["outputs"]["report"])
    assert (report / "slices-shop.png").exists()
    detail = json.loads((report / "metrics.json").read_text())["slices"]["shop"]["north"]
    assert detail["champion"]["accuracy"]["low"] < detail["champion"]["accuracy"]["value"]


def test_a_regression(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1500, 2)).astype(np.float32)
    labels = features @ np.array([3.0, -1.0]) + rng.normal(scale=0.5, size=1500)
    dataset = write_dataset(tmp_path / "data", {"test": (features, labels)}, classes=0)
    model = store_linear(tmp_path / "model", dataset, torch.tensor([[3.0, -1.0]]))
    worse = store_linear(tmp_path / "worse", dataset, torch.tensor([[3.0, 0.0]]))
    settings = {"model": model, "champion": worse, "bootstrap_rows": 1000}
    found = evaluated(spark, tmp_path / "run", dataset, **settings)
    predictions = features @ np.array([3.0, -1.0])
    expected = {
        "rmse": sk.root_mean_squared_error(labels, predictions),
        "mse": sk.mean_squared_error(labels, predictions),
        "mae": sk.mean_absolute_error(labels, predictions),
        "r2": sk.r2_score(labels, predictions),
    }
    values = {name: metric["value"] for name, metric in found["metrics"].items()}
    assert values == pytest.approx(expected, rel=1e-5)
    assert (found["rows"], found["resampled_rows"]) == ({"test": 1500}, 1000)
    assert all(m["low"] < m["value"] < m["high"] for m in found["metrics"].values())
    assert found["differences"]["rmse"]["high"] < 0
    assert (found["task"], found["comparison"]) == ("regression", None)
    report = Path(found["outputs"]["report"])
    names = {"metrics.json", "charts.json", "residuals.png"}
    assert {path.name for path in report.iterdir()} == names
    charts = json.loads((report / "charts.json").read_text())
    off = np.abs(labels - predictions)
    assert [int(row["key"]) for row in charts["misses"]] == list(np.argsort(-off)[:16])
    assert [row["label"] - row["prediction"] for row in charts["misses"]] == pytest.approx(
        list((labels - predictions)[np.argsort(-off)[:16]]), rel=1e-4
    )
    residuals = charts["residuals"]
    assert sum(residuals["histogram"]["rows"]) == 1000
    assert abs(residuals["mean"]) < 0.1


class TestErrors:
    @pytest.mark.parametrize(
        ("labels", "classes", "problem"),
        [
            ([0, None, 1], 3, "are null, such as of key 1"),
            ([0, 3, -1], 3, "are no index of one of the 3 classes, such as of key 1, 2"),
            ([0.5, float("nan"), None], 0, "are null or not finite, such as of key 1, 2"),
        ],
        ids=["null", "outside", "regression"],
    )
    def test_labels_that_cannot_be(
        self,
        spark: SparkSession,
        tmp_path: Path,
        labels: list[float | None],
        classes: int,
        problem: str,
    ) -> None:
        plain = np.zeros(3, np.int64 if classes else np.float64)
        split = (np.ones((3, 2), np.float32), plain)
        dataset = write_dataset(tmp_path / "data", {"test": split}, classes=classes)
        table = pq.read_table(dataset.paths("test")[0])
        column = pa.array(labels, table.schema.field("label").type)
        path = Path(dataset.paths("test")[0])
        pq.write_table(table.set_column(2, "label", column), path)
        (file,) = dataset.splits["test"]
        file = dataclasses.replace(file, bytes=path.stat().st_size)
        dataclasses.replace(dataset, splits={**dataset.splits, "test": (file,)}).write()
        model = store_linear(tmp_path / "model", dataset, GOOD if classes else GOOD[:1])
        with pytest.raises(JobError, match=f"labels of the test split of '.*' {problem}"):
            evaluated(spark, tmp_path / "run", dataset, model=model)

    def test_a_slice_that_was_not_kept(
        self, spark: SparkSession, models: dict[str, str], tmp_path: Path
    ) -> None:
        kept = {"carrier": ["a"] * 30}
        dataset = write_dataset(tmp_path / "data", {"test": rows(30, 2)}, classes=3, kept=kept)
        with pytest.raises(SettingError, match=r"keep column 'carier'.* Did you mean 'carrier'"):
            evaluated(spark, tmp_path, dataset, model=models["good"], slices=("carier",))

    def test_a_slice_of_too_many_values(
        self, spark: SparkSession, models: dict[str, str], tmp_path: Path
    ) -> None:
        kept = {"id": [str(i) for i in range(130)]}
        dataset = write_dataset(tmp_path / "data", {"test": rows(130, 2)}, classes=3, kept=kept)
        with pytest.raises(JobError, match="'slices' names 'id', which has 130 values; 100"):
            evaluated(spark, tmp_path, dataset, model=models["good"], slices=("id",))

    def test_an_empty_split(
        self, spark: SparkSession, dataset: Dataset, models: dict[str, str], tmp_path: Path
    ) -> None:
        with pytest.raises(JobError, match=r"the validation split of '.*' has 0 rows"):
            evaluated(spark, tmp_path, dataset, model=models["good"], split="validation")

    def test_one_class(self, spark: SparkSession, tmp_path: Path) -> None:
        split = (np.ones((5, 2), np.float32), np.ones(5, np.int64))
        dataset = write_dataset(tmp_path / "data", {"test": split}, classes=3)
        model = store_linear(tmp_path / "model", dataset, GOOD)
        with pytest.raises(JobError, match="all 5 rows to judge by have one class only, 1"):
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

    @pytest.mark.parametrize(
        ("damage", "problem"),
        [
            ("gone", "of the dataset is not there, where dataset.json says"),
            ("truncated", "of the dataset has .* bytes, where dataset.json says"),
            ("other", "of the dataset has .* bytes, where dataset.json says .* and 30 rows"),
        ],
    )
    def test_files_that_no_longer_match(
        self, spark: SparkSession, tmp_path: Path, damage: str, problem: str
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
        with pytest.raises(JobError, match=problem):
            evaluated(spark, tmp_path / "run", dataset, model=model)

    def test_a_champion_that_cannot_be_read(
        self, spark: SparkSession, dataset: Dataset, models: dict[str, str], tmp_path: Path
    ) -> None:
        with pytest.raises(JobError, match=r"there is no meta\.json"):
            evaluated(spark, tmp_path, dataset, model=models["good"], champion=str(tmp_path / "x"))
