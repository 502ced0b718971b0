"""Predictions: one for each row, by the model's own classes, whole or not at all."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from job_runs import run_in
from made_datasets import write_dataset
from tiny_models import store_linear

from predict import predict_rows
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.job import EXIT_REFUSED, Run, run_job
from trainyard.rows import content_key
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Predict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WEIGHT = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
ROWS = 90


def features(count: int = ROWS) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    found = features()
    labels = np.arange(ROWS) % 3
    splits = {"train": (found[:60], labels[:60]), "test": (found[60:], labels[60:])}
    return write_dataset(tmp_path_factory.mktemp("data"), splits, classes=3)


@pytest.fixture(scope="module")
def model(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> str:
    return store_linear(tmp_path_factory.mktemp("model"), dataset, WEIGHT)


@pytest.fixture(scope="module")
def column_model(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of two plain columns, with texts as classes."""
    named = {"features": ("a", "b"), "key": "id", "classes": ("x", "y", "z")}
    return store_linear(tmp_path_factory.mktemp("model"), dataset, WEIGHT, **named)


def predicted(
    spark: SparkSession, run_dir: Path, source: Path | str, model: str, **settings: Any
) -> tuple[pa.Table, dict[str, Any]]:
    spec = Predict(run_dir=str(run_dir), source=str(source), model=model, **settings)
    with unwrapped():
        result = predict_rows(spark, spec, run_in(run_dir))
    return pq.read_table(result["outputs"]["predictions"]), result


def source_table(**columns: Any) -> pa.Table:
    a, b = features().astype(float).T
    return pa.table({"b": b, "id": np.arange(ROWS), "extra": ["?"] * ROWS, "a": a, **columns})


def written(directory: Path, table: pa.Table) -> Path:
    directory.mkdir(exist_ok=True)
    pq.write_table(table, directory / "source.parquet")
    return directory / "source.parquet"


def all_of(count: int) -> dict[str, int]:
    """The rows of a result in which none is bad."""
    return {"in": count, "out": count, "quarantined": 0}


def expected(count: int = ROWS) -> np.ndarray[Any, Any]:
    return torch.tensor(features(count) @ WEIGHT.numpy().T).double().softmax(1).numpy()


def test_a_prepared_dataset(
    spark: SparkSession, dataset: Dataset, model: str, tmp_path: Path
) -> None:
    began = datetime.now(UTC)
    table, result = predicted(spark, tmp_path, dataset.directory, model, batch_size=7)
    assert result["rows"] == all_of(ROWS)
    assert table.schema == pa.schema(
        {
            "key": pa.string(),
            "prediction": pa.int64(),
            "probabilities": pa.list_(pa.float64()),
            "model_name": pa.string(),
            "model_version": pa.string(),
            "scored_at": pa.timestamp("us", tz="UTC"),
        }
    )
    train = {row["key"]: row for row in table.to_pylist()[:60]}
    probabilities = np.array([train[str(i)]["probabilities"] for i in range(30)])
    assert np.allclose(probabilities, expected()[:30], atol=1e-6)
    assert [train[str(i)]["prediction"] for i in range(30)] == expected()[:30].argmax(1).tolist()
    (scored_at,) = set(table["scored_at"].to_pylist())
    assert timedelta() <= scored_at - began < timedelta(minutes=2)
    assert result["model"] == {"uri": model, "name": None, "version": None}


def test_the_likeliest_classes_by_name(
    spark: SparkSession, column_model: str, tmp_path: Path
) -> None:
    source = written(tmp_path, source_table())
    table, _ = predicted(spark, tmp_path / "run", source, column_model, top_k=2)
    rows = {int(row["key"]): row for row in table.to_pylist()}
    for number, all_of_them in enumerate(expected()):
        best = all_of_them.argsort()[::-1][:2]
        row = rows[number]
        assert row["labels"] == ["xyz"[i] for i in best]
        assert row["prediction"] == row["labels"][0]
        assert np.allclose(row["probabilities"], all_of_them[best], atol=1e-6)


def test_one_split(spark: SparkSession, dataset: Dataset, model: str, tmp_path: Path) -> None:
    table, result = predicted(spark, tmp_path, dataset.directory, model, split="test")
    assert result["rows"] == all_of(30)
    assert sorted(map(int, table["key"].to_pylist())) == list(range(30))
    assert (
        {"prediction", "scored_at"}
        <= dictionaries(tmp_path)
        <= set(table.column_names)
        - {
            "key",
            "probabilities",
        }
    )


def dictionaries(run_dir: Path) -> set[str]:
    """The columns of a file with rows that have a dictionary."""
    files = map(pq.ParquetFile, (run_dir / "predictions").glob("*.parquet"))
    group = next(file for file in files if file.metadata.num_rows).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {c.path_in_schema.split(".")[0] for c in columns if c.has_dictionary_page}


def test_an_empty_split_is_an_empty_table(
    spark: SparkSession, dataset: Dataset, model: str, tmp_path: Path
) -> None:
    table, result = predicted(spark, tmp_path, dataset.directory, model, split="validation")
    assert (table.num_rows, result["rows"]) == (0, all_of(0))
    assert table.schema.field("probabilities").type == pa.list_(pa.float64())


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_any_table_with_the_columns(
    spark: SparkSession, column_model: str, tmp_path: Path, form: str
) -> None:
    source = tmp_path / "source"
    frame = spark.createDataFrame(source_table()).repartition(3)
    getattr(frame.write, form)(str(source), **({"header": True} if form == "csv" else {}))
    table, result = predicted(spark, tmp_path / "run", source, column_model)
    assert result["rows"] == all_of(ROWS)
    rows = {int(row["key"]): row for row in table.to_pylist()}
    assert np.allclose([rows[i]["probabilities"] for i in range(ROWS)], expected(), atol=1e-6)
    assert [rows[i]["prediction"] for i in range(ROWS)] == ["xyz"[i] for i in expected().argmax(1)]


def test_an_empty_table(spark: SparkSession, column_model: str, tmp_path: Path) -> None:
    source = written(tmp_path, source_table().slice(0, 0))
    table, result = predicted(spark, tmp_path / "run", source, column_model)
    assert (table.num_rows, result["rows"]) == (0, all_of(0))
    assert table.column_names[:3] == ["key", "prediction", "probabilities"]


def test_a_regression(spark: SparkSession, tmp_path: Path) -> None:
    split = (features(), np.zeros(ROWS))
    dataset = write_dataset(tmp_path / "data", {"test": split}, classes=0)
    model = store_linear(tmp_path / "model", dataset, torch.tensor([[3.0, -1.0]]))
    table, result = predicted(spark, tmp_path / "run", dataset.directory, model, batch_size=7)
    assert result["rows"]["out"] == ROWS
    names = ["key", "prediction", "model_name", "model_version", "scored_at"]
    assert table.column_names == names
    assert table.schema.field("prediction").type == pa.float64()
    found = {int(row["key"]): row["prediction"] for row in table.to_pylist()}
    wanted = features() @ np.array([3.0, -1.0])
    assert np.allclose([found[i] for i in range(ROWS)], wanted, atol=1e-5)


def test_rows_that_are_scored_already_are_not_scored_again(
    spark: SparkSession, dataset: Dataset, model: str, tmp_path: Path
) -> None:
    spec = Predict(run_dir=str(tmp_path), source=dataset.directory, model=model)
    argv = spec.argv()
    scored = 0

    def work(given: Predict, run: Run) -> dict[str, Any]:
        nonlocal scored
        scored += 1
        return predict_rows(spark, given, run)

    assert [run_job(Predict, work, argv) for _ in range(2)] == [0, 0]
    assert scored == 1
    other = dataclasses.replace(spec, split="test")
    assert run_job(Predict, work, other.argv()) == EXIT_REFUSED
    assert pq.read_table(tmp_path / "predictions").num_rows == ROWS


def test_without_a_key_the_content_is_the_key(
    spark: SparkSession, model: str, tmp_path: Path
) -> None:
    pixels = pa.array(features().tolist(), pa.list_(pa.float32()))
    source = written(tmp_path, pa.table({"pixels": pixels}))
    table, _ = predicted(spark, tmp_path / "run", source, model)
    assert set(table["key"].to_pylist()) == {content_key(row) for row in features()}


def test_a_second_attempt_leaves_nothing_of_the_first(
    spark: SparkSession, dataset: Dataset, model: str, tmp_path: Path
) -> None:
    predicted(spark, tmp_path, dataset.directory, model, split="train")
    table, _ = predicted(spark, tmp_path, dataset.directory, model, split="test")
    assert table.num_rows == 30


class TestErrors:
    def test_bad_rows(self, spark: SparkSession, column_model: str, tmp_path: Path) -> None:
        bad = source_table(
            a=[None if i == 4 else float("inf") if i == 5 else 1.0 for i in range(ROWS)]
        )
        with pytest.raises(JobError) as caught:
            predicted(spark, tmp_path / "run", written(tmp_path, bad), column_model)
        assert "2 of 90 rows" in str(caught.value)
        assert "1 where feature 'a' is null (such as key 4)" in str(caught.value)
        assert "1 where feature 'a' is infinite (such as key 5)" in str(caught.value)

    @pytest.mark.parametrize("budget", [{"bad_rows": 0.1}, {"bad_rows": 1.0, "bad_rows_count": 2}])
    def test_a_few_bad_rows_go_to_quarantine_with_their_keys(
        self, spark: SparkSession, column_model: str, tmp_path: Path, budget: dict[str, Any]
    ) -> None:
        bad = source_table(
            a=[None if i == 4 else float("inf") if i == 5 else 1.0 for i in range(ROWS)]
        )
        source = written(tmp_path, bad)
        table, result = predicted(spark, tmp_path / "run", source, column_model, **budget)
        assert result["rows"] == {"in": ROWS, "out": ROWS - 2, "quarantined": 2}
        assert {int(key) for key in table["key"].to_pylist()} == set(range(ROWS)) - {4, 5}
        aside = pq.read_table(result["outputs"]["quarantine"]).to_pylist()
        assert sorted((row["key"], row["reason"]) for row in aside) == [
            ("4", "feature 'a' is null"),
            ("5", "feature 'a' is infinite"),
        ]

    def test_a_missing_feature(
        self, spark: SparkSession, column_model: str, tmp_path: Path
    ) -> None:
        source = written(tmp_path, source_table().drop_columns(["a"]))
        with pytest.raises(JobError, match="has no column 'a'"):
            predicted(spark, tmp_path / "run", source, column_model)

    def test_another_width(self, spark: SparkSession, model: str, tmp_path: Path) -> None:
        source = written(tmp_path, pa.table({"pixels": [[1.0, 2.0, 3.0]]}))
        with pytest.raises(JobError, match="feature 'pixels' has 3 numbers instead of 2"):
            predicted(spark, tmp_path / "run", source, model)

    def test_a_dataset_of_other_features(
        self, spark: SparkSession, dataset: Dataset, column_model: str, tmp_path: Path
    ) -> None:
        with pytest.raises(JobError, match="the model wants features"):
            predicted(spark, tmp_path, dataset.directory, column_model)

    def test_a_split_of_a_plain_table(
        self, spark: SparkSession, column_model: str, tmp_path: Path
    ) -> None:
        source = written(tmp_path, source_table())
        with pytest.raises(JobError, match="is no prepared dataset"):
            predicted(spark, tmp_path / "run", source, column_model, split="test")

    @pytest.mark.parametrize(
        "source",
        ["run/predictions", "run", ".", "run/predictions/part", "run/images", "run/quarantine"],
    )
    def test_onto_its_own_input(
        self, spark: SparkSession, model: str, tmp_path: Path, source: str
    ) -> None:
        kept = tmp_path / "run" / "predictions" / "part" / "x.parquet"
        kept.parent.mkdir(parents=True)
        kept.write_bytes(b"")
        with pytest.raises(JobError, match="where the results would go too"):
            predicted(spark, tmp_path / "run", tmp_path / source, model, format="parquet")
        assert kept.exists()

    def test_scores_that_are_not_finite(
        self, spark: SparkSession, dataset: Dataset, tmp_path: Path
    ) -> None:
        named = {"features": ("a", "b"), "key": "id", "network": "tiny_models:Broken"}
        model = store_linear(tmp_path / "model", dataset, WEIGHT, **named)
        source = written(tmp_path, source_table(a=np.where(np.arange(ROWS) == 7, 101.0, 0.0)))
        with pytest.raises(JobError, match="scores that are not finite, such as for key 7"):
            predicted(spark, tmp_path / "run", source, model)
