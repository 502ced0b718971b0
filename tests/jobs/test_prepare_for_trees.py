"""What `prepare` makes for boosted trees: gaps, categories, base margins, sparse vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from boosted import real_rows, spec_of, trees
from prepared_tables import GAPPY, all_rows, gappy_flights, prepared, refusal

import train_horovod
from trainyard.errors import JobError
from trainyard.specs import TrainHorovod
from trainyard.xgboost.booster import from_bytes
from trainyard.xgboost.train import train

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_sparse_and_dense_vectors_give_the_same_trees(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    features, labels = real_rows("binary")["train"]
    features = np.where(features > np.median(features, axis=0), features, 0)[:, :8]
    found: dict[str, list[str]] = {}
    for form in ("dense", "sparse"):
        rows = [
            (
                number,
                Vectors.dense(row.tolist())
                if form == "dense"
                else Vectors.sparse(8, {int(i): float(row[i]) for i in np.flatnonzero(row)}),
                int(label),
            )
            for number, (row, label) in enumerate(zip(features, labels, strict=True))
        ]
        path = tmp_path / f"{form}.parquet"
        spark.createDataFrame(rows, ["id", "v", "y"]).write.parquet(str(path))
        dataset, _ = prepared(spark, tmp_path / form, path, features=("v",), label="y")
        for missing in (None, 0):
            run_dir = tmp_path / f"{form}-{missing}"
            run_dir.mkdir()
            result = train(spec_of(run_dir, dataset, missing=missing), dataset, claim=1)
            assert result.booster is not None
            found[f"{form} {missing}"] = trees(from_bytes(result.booster))
    assert found["sparse None"] == found["dense None"]
    assert found["sparse 0"] == found["dense 0"]
    assert found["sparse 0"] != found["sparse None"]


def test_gaps_and_categories_stay(spark: SparkSession, tmp_path: Path) -> None:
    source = gappy_flights(60)
    dataset, _ = prepared(spark, tmp_path, source, **GAPPY)
    assert dataset.preprocessing is not None
    assert dataset.preprocessing.leaves_missing
    rows, given = all_rows(dataset), source.to_pylist()
    train = [given[int(k)]["carrier"] for k, row in rows.items() if row["split"] == "train"]
    codes: dict[str, set[float]] = {}
    for key, row in rows.items():
        was = given[int(key)]
        for place, name in ((0, "dep.delay [min]"), (1, "features")):
            value = was[name]
            if value is None or np.isnan(value):
                assert np.isnan(row["features"][place])
            else:
                assert row["features"][place] == pytest.approx(value, rel=1e-6)
        code = row["features"][2]
        if was["carrier"] is None or was["carrier"] not in train:
            assert np.isnan(code)
        else:
            codes.setdefault(was["carrier"], set()).add(code)
    assert sorted(*zip(*codes.values(), strict=True)) == [0.0, 1.0, 2.0, 3.0]

    spec = TrainHorovod(run_dir="r", dataset=dataset.directory, model_name="m")
    with pytest.raises(JobError, match="leaves missing numbers missing"):
        train_horovod.check(spec, dataset)


def test_a_boolean_says_what_validates(spark: SparkSession, tmp_path: Path) -> None:
    source = gappy_flights(60)
    by = {**GAPPY, "split_column": "validates"}
    dataset, _ = prepared(spark, tmp_path, source, **by)
    rows = all_rows(dataset)
    flags = source["validates"].to_pylist()
    assert {k: row["split"] for k, row in rows.items()} == {
        str(i): "validation" if flag else "train" for i, flag in enumerate(flags)
    }
    place = source.schema.get_field_index("validates")
    for value, said in ((True, "train split has 0 of 60"), (False, "validation split has 0")):
        same = source.set_column(place, "validates", pa.array([value] * 60))
        assert said in refusal(spark, tmp_path / str(value), same, **by)
    dirty = source.set_column(place, "validates", pa.array([None, *flags[1:]]))
    assert "'validates' is null" in refusal(spark, tmp_path / "null", dirty, **by)
    texts = source.set_column(place, "validates", pa.array(["yes"] * 60))
    assert "none of train, validation, test" in refusal(spark, tmp_path / "t", texts, **by)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([None] + [0.0] * 59, "base margin 'start' is null"),
        ([1e39] + [0.0] * 59, "base margin 'start' is not finite"),
        ([[0.0, 1.0]] * 60, "60 rows have 2 numbers in it"),
        (["x"] * 60, "base margin column 'start' has the type string"),
    ],
)
def test_base_margins_that_are_none(
    spark: SparkSession, tmp_path: Path, values: list[Any], problem: str
) -> None:
    source = gappy_flights(60)
    place = source.schema.get_field_index("start")
    source = source.set_column(place, "start", pa.array(values))
    assert problem in refusal(spark, tmp_path, source, **GAPPY, base_margin="start")


def test_numbers_that_32_bits_do_not_hold(spark: SparkSession, tmp_path: Path) -> None:
    huge = pa.array([1e39, -1e39] + [1.0, 2.0] * 29)
    source = gappy_flights(60).append_column("huge", huge)
    for role, task in (("weight", "classification"), ("label", "regression")):
        said = refusal(spark, tmp_path / role, source, **{**GAPPY, "task": task, role: "huge"})
        assert f"where {role} 'huge' is too large for a 32-bit float" in said


def test_kept_gaps_are_not_scaled(spark: SparkSession, tmp_path: Path) -> None:
    said = refusal(spark, tmp_path, gappy_flights(60), **GAPPY, scaling="standard")
    assert "'scaling' is 'standard'" in said
