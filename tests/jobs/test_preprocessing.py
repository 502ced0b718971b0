"""What is fitted on the training rows makes the same features in training, judging and serving."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from job_runs import notes, run_in
from prepared_tables import ROWS, all_rows, prepared, refusal, rows_of, table
from tiny_models import store_linear

import prepare
import train_horovod
from predict import predict_rows
from trainyard import registry, store, tracking
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.good_rows import good_rows
from trainyard.horovod.history import TrainResult
from trainyard.inputs import input_of, inputs
from trainyard.layout import MODEL, PREPROCESSING, join
from trainyard.models import StoredModel
from trainyard.parts import cut
from trainyard.preprocessing import Preprocessing
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Predict, TrainHorovod

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CARRIERS = ("AA", "DL", "UA")


def flights(rows: int = ROWS, shift: float = 0.0) -> pa.Table:
    """Distances with gaps, delays, and carriers of which one row has none."""
    rng = np.random.default_rng(7)
    distance: list[Any] = (rng.normal(900, 300, rows) + shift).tolist()
    distance[3] = None
    distance[8] = float("nan")
    return table(
        rows,
        a=pa.array(distance, pa.float64()),
        b=rng.integers(0, 60, rows),
        carrier=[None if i == 4 else CARRIERS[i % 3] for i in range(rows)],
    )


SETTINGS: dict[str, Any] = {
    "features": ("a", "carrier", "b"),
    "categorical": ("carrier",),
    "imputation": "mean",
    "scaling": "standard",
}


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Dataset, pa.Table, Path]:
    root = tmp_path_factory.mktemp("flights")
    dataset, _ = prepared(spark, root, flights(), **SETTINGS)
    return dataset, flights(), root


@pytest.fixture(scope="module")
def model(made: tuple[Dataset, pa.Table, Path]) -> str:
    dataset, _, root = made
    return stored_model(root / "model", dataset)


def stored_model(directory: Path, dataset: Dataset) -> str:
    """A model of a dataset, stored as the training stores it."""
    weight = torch.arange(3 * dataset.width).reshape(3, -1).float() / 10
    spec = TrainHorovod(
        run_dir=str(directory),
        dataset=dataset.directory,
        network="tiny_models:Linear",
        network_params={"width": dataset.width, "classes": 3},
        input_shape=(dataset.width,),
        model_name="flights",
    )
    state = {"layer.weight": weight, "layer.bias": torch.zeros(3)}
    trained = TrainResult(history=(), state=state, rows={}, resumed=0)
    train_horovod.store_model(spec, dataset, trained)
    return join(spec.run_dir, MODEL)


def predicted(
    spark: SparkSession, run_dir: Path, source: Path | str, model: str, **settings: Any
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    spec = Predict(run_dir=str(run_dir), source=str(source), model=model, **settings)
    with unwrapped():
        result = predict_rows(spark, spec, run_in(run_dir))
    rows = pq.read_table(result["outputs"]["predictions"]).to_pylist()
    return {row["key"]: row["probabilities"] for row in rows}, result


def test_rows_that_are_looked_at_again_are_made_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"

    def telling(*given: Any, **more: Any) -> DataFrame:
        rows = good_rows(*given, **more)

        def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                with told.open("a") as file:
                    file.write(f"{batch.num_rows}\n")
                yield batch

        return rows.mapInArrow(tell, rows.schema)

    monkeypatch.setattr(prepare, "good_rows", telling)
    kept_by_others = set(spark.sparkContext._jsc.getPersistentRDDs())
    made, _ = prepared(spark, tmp_path, flights(), **SETTINGS, split_by="time", split_column="id")
    assert len(all_rows(made)) == ROWS
    assert sum(map(int, told.read_text().split())) == ROWS
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) == kept_by_others


def test_features_are_those_of_the_training_rows(made: tuple[Dataset, pa.Table, Path]) -> None:
    dataset, source, _ = made
    rows = all_rows(dataset)
    assert len(rows) == ROWS
    train = [int(key) for key, row in rows.items() if row["split"] == "train"]
    a = np.array(source["a"].to_pylist(), dtype=float)
    b = np.array(source["b"].to_pylist(), dtype=float)
    a[np.isnan(a)] = np.nanmean(a[train])
    scaled = [(x - x[train].mean()) / x[train].std(ddof=1) for x in (a, b)]
    carriers = source["carrier"].to_pylist()
    by_count = sorted(CARRIERS, key=lambda c: (-sum(carriers[i] == c for i in train), c))
    assert dataset.width == 2 + len(CARRIERS) + 1
    for key, row in rows.items():
        i = int(key)
        hot = [float(carriers[i] == carrier) for carrier in by_count] + [float(carriers[i] is None)]
        assert row["features"] == pytest.approx([scaled[0][i], scaled[1][i], *hot], abs=1e-5)
    assert rows["4"]["categories"] == [None]
    assert rows["5"]["values"] == [a[5], b[5]]


def test_training_and_serving_cannot_differ(
    spark: SparkSession, made: tuple[Dataset, pa.Table, Path], model: str, tmp_path: Path
) -> None:
    dataset, _, root = made
    trained, _ = predicted(spark, tmp_path / "1", dataset.directory, model)
    served, result = predicted(spark, tmp_path / "2", root / "source.parquet", model)
    assert served == trained
    assert len(served) == ROWS
    assert result["rows"] == {"in": ROWS, "out": ROWS, "quarantined": 0, "unseen": 1}


def test_a_registered_version_brings_its_own(
    spark: SparkSession,
    made: tuple[Dataset, pa.Table, Path],
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(registry.TRACKING_URI, f"sqlite:///{tmp_path}/mlflow.db")
    tracked = tracking.track(
        experiment="flights",
        model_name="flights",
        run_dir=str(tmp_path),
        model_directory=model,
        model_sha256=StoredModel.read(model).meta.weights_sha256,
        params={},
        tags={},
        history=[],
    )
    source = made[2] / "source.parquet"
    served, result = predicted(spark, tmp_path / "1", source, tracked.uri)
    assert served == predicted(spark, tmp_path / "2", source, model)[0]
    assert result["model"] == {"uri": "models:/flights/1", "name": "flights", "version": "1"}


def test_a_new_category_is_kept_and_counted(
    spark: SparkSession, model: str, tmp_path: Path
) -> None:
    source = tmp_path / "new.parquet"
    new = flights(20).set_column(4, "carrier", pa.array(["ZZ"] * 9 + ["AA"] * 11))
    pq.write_table(new.drop_columns(["y"]), source)
    served, result = predicted(spark, tmp_path / "run", source, model)
    assert len(served) == 20
    assert result["rows"] == {"in": 20, "out": 20, "quarantined": 0, "unseen": 9}
    assert any("9 of 20 rows have a category" in note for note in notes(tmp_path / "run"))


def test_rows_that_cannot_be_served_are_named(
    spark: SparkSession, model: str, tmp_path: Path
) -> None:
    source = tmp_path / "bad.parquet"
    pq.write_table(flights(20).set_column(2, "b", pa.array([float("inf")] + [1.0] * 19)), source)
    with pytest.raises(JobError, match=r"1 where feature 'b' is infinite \(such as key 0\)"):
        predicted(spark, tmp_path / "run", source, model)


def test_a_model_of_another_dataset_keeps_its_own(
    spark: SparkSession, made: tuple[Dataset, pa.Table, Path], model: str, tmp_path: Path
) -> None:
    """Yesterday's champion is judged on today's rows as it would serve them."""
    today, _ = prepared(spark, tmp_path / "today", flights(shift=500.0), **SETTINGS)
    assert today.preprocessing != made[0].preprocessing
    scored, _ = predicted(spark, tmp_path / "1", today.directory, model)
    served, _ = predicted(spark, tmp_path / "2", tmp_path / "today" / "source.parquet", model)
    assert scored == served

    models = {"challenger": StoredModel.read(stored_model(tmp_path / "model", today))}
    models["champion"] = StoredModel.read(model)
    assert input_of(today, "challenger", models["challenger"]) == "features"
    assert input_of(today, "champion", models["champion"]) == "champion_features"
    rows = inputs(spark, today, cut(today, ["test"], 2), models, str(tmp_path / "run")).collect()
    ours = np.array([row["features"] for row in rows])
    theirs = np.array([row["champion_features"] for row in rows])
    # The two means are 500 apart, and the deviation is about 300.
    assert (theirs - ours)[:, 0].mean() == pytest.approx(500 / 300, rel=0.2)


def test_plain_numbers_and_preprocessed_ones(spark: SparkSession, tmp_path: Path) -> None:
    plain, _ = prepared(spark, tmp_path / "plain", table())
    scaled, _ = prepared(spark, tmp_path / "scaled", table(), scaling="minmax")
    of_plain = store_linear(tmp_path / "m1", plain, torch.ones(3, 2))
    of_scaled = stored_model(tmp_path / "m2", scaled)
    for number, (dataset, model) in enumerate([(scaled, of_plain), (plain, of_scaled)]):
        source = tmp_path / "plain" / "source.parquet"
        scored, _ = predicted(spark, tmp_path / f"a{number}", dataset.directory, model)
        served, _ = predicted(spark, tmp_path / f"b{number}", source, model)
        assert scored == served
    ranges = np.array([row["features"] for row in rows_of(scaled, "train").to_pylist()])
    assert (ranges.min(axis=0).tolist(), ranges.max(axis=0).tolist()) == ([0, 0], [1, 1])


def test_rows_that_lack_what_a_model_wants(
    spark: SparkSession, made: tuple[Dataset, pa.Table, Path], model: str, tmp_path: Path
) -> None:
    named = {"features": ("a", "carrier", "b"), "categorical": ("carrier",)}
    source = flights().set_column(1, "a", pa.array(np.arange(ROWS) * 1.0))
    other, _ = prepared(spark, tmp_path, source, **named)
    of_other = stored_model(tmp_path / "model", other)
    with pytest.raises(JobError, match="and some may be missing"):
        predicted(spark, tmp_path / "run", made[0].directory, of_other)


class TestColumns:
    def test_arrays_are_scaled_and_sparse_vectors_too(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        from pyspark.ml.linalg import Vectors

        vectors = [
            Vectors.sparse(3, [0], [float(i)]) if i % 2 else Vectors.dense(float(i), 0.0, 5.0)
            for i in range(ROWS)
        ]
        rows = [(i, vector, i % 2) for i, vector in enumerate(vectors)]
        spark.createDataFrame(rows, ["id", "x", "y"]).write.parquet(str(tmp_path / "source"))
        dataset, _ = prepared(
            spark, tmp_path, tmp_path / "source", features=("x",), scaling="minmax"
        )
        train = np.array([row["features"] for row in rows_of(dataset, "train").to_pylist()])
        assert train.max(axis=0).tolist() == [1.0, 0.5, 1.0]
        assert set(train[:, 2]) == {0.0, 1.0}

    def test_large_numbers_keep_their_digits_when_scaled(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        large = 2**24 + np.arange(ROWS) % 2
        dataset, _ = prepared(
            spark, tmp_path, table(large=large), features=("large",), scaling="minmax"
        )
        rows = all_rows(dataset)
        assert all(row["features"] == [int(key) % 2] for key, row in rows.items())
        assert notes(tmp_path / "run") == []

    def test_categories_alone(self, spark: SparkSession, tmp_path: Path) -> None:
        named = {"features": ("b",), "categorical": ("b",)}
        dataset, _ = prepared(spark, tmp_path, table(), **named)
        assert dataset.width == 8
        assert all(sum(row["features"]) == 1 for row in all_rows(dataset).values())

    def test_what_cannot_be_preprocessed(self, spark: SparkSession, tmp_path: Path) -> None:
        arrays = pa.array([[1.0, float(i)] for i in range(ROWS)])
        message = refusal(spark, tmp_path, table(x=arrays), features=("x",), imputation="mean")
        assert "setting 'imputation' is 'mean': feature 'x' is an array" in message
        nothing = pa.nulls(ROWS, pa.float64())
        message = refusal(spark, tmp_path, table(a=nothing), imputation="median")
        assert "setting 'features' is 'a': it is missing in every row" in message
        numbers = table(c=np.arange(ROWS) / 2)
        message = refusal(spark, tmp_path, numbers, features=("c",), categorical=("c",))
        assert "categorical column 'c' has the type double" in message


class TestStored:
    def test_no_other_class_is_loaded(
        self, spark: SparkSession, model: str, tmp_path: Path
    ) -> None:
        copied = tmp_path / "model"
        store.copy(model, str(copied))
        (path,) = copied.glob("preprocessing/stages/0_*/metadata/part-*")
        described = json.loads(path.read_text())
        described["class"] = "org.apache.spark.ml.feature.SQLTransformer"
        path.write_text(json.dumps(described))
        found = StoredModel.read(str(copied))
        assert found.meta.preprocessing is not None
        with pytest.raises(JobError, match="does not have the sha256"):
            Preprocessing.load(str(copied), found.meta.preprocessing, str(tmp_path / "run"))
        from trainyard.preprocessing import _check_stages

        with pytest.raises(
            JobError, match=r"names the class 'org\.apache\.spark\.ml\.feature\.SQLTr"
        ):
            _check_stages(str(copied / PREPROCESSING))

    def test_it_holds_no_pickle(self, model: str) -> None:
        names = {path.suffix for path in Path(model).rglob("*") if path.is_file()}
        assert names <= {".json", ".safetensors", ".parquet", ".crc", "", ".txt"}
