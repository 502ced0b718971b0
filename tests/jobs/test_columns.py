"""Labels and features of any type: what they become, and which are refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from job_runs import notes
from prepared_tables import ROWS, prepared, refusal, rows_of, table

from trainyard.specs import SPLITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestLabels:
    @pytest.mark.parametrize(
        ("labels", "classes"),
        [
            ([b"x", b"y"], None),
            (["b", "a"], ("a", "b")),
            (["10", "9"], ("10", "9")),
            ([10, 9], (9, 10)),
            ([-1, 2**40], (-1, 2**40)),
            ([True, False], (0, 1)),
            ([2.0, 1.0], (1, 2)),
        ],
    )
    def test_labels_of_any_type_become_classes(
        self,
        spark: SparkSession,
        tmp_path: Path,
        labels: list[Any],
        classes: tuple[Any, ...] | None,
    ) -> None:
        source = table(y=pa.array(labels * (ROWS // 2)))
        if classes is None:
            assert "label column 'y' has the type binary" in refusal(spark, tmp_path, source)
            return
        dataset, _ = prepared(spark, tmp_path, source)
        assert dataset.classes == classes
        rows = [row for split in SPLITS for row in rows_of(dataset, split).to_pylist()]
        assert all(dataset.classes[row["label"]] == labels[int(row["key"]) % 2] for row in rows)

    def test_fractions_are_no_classes(self, spark: SparkSession, tmp_path: Path) -> None:
        message = refusal(spark, tmp_path, table(y=np.arange(ROWS) / 4))
        assert "label column 'y' has values that are no whole numbers, such as 0.25" in message

    @pytest.mark.parametrize("value", [1e300, float("inf")])
    def test_numbers_beyond_all_integers_are_no_classes(
        self, spark: SparkSession, tmp_path: Path, value: float
    ) -> None:
        labels = np.where(np.arange(ROWS) == 5, value, np.arange(ROWS) % 2)
        assert "no whole numbers" in refusal(spark, tmp_path, table(y=labels))

    def test_one_class(self, spark: SparkSession, tmp_path: Path) -> None:
        message = refusal(spark, tmp_path, table(y=np.ones(ROWS, np.int64)))
        assert "label column 'y' has one class only: '1' in all 300 rows" in message

    def test_a_split_without_a_class_is_noted(self, spark: SparkSession, tmp_path: Path) -> None:
        prepared(spark, tmp_path, table(y=(np.arange(ROWS) == 3).astype(np.int64)))
        assert sum("has no row of class 1" in note for note in notes(tmp_path / "run")) == 2


class TestFeatures:
    def test_numbers_of_any_type(self, spark: SparkSession, tmp_path: Path) -> None:
        columns = {
            "boolean": pa.array(np.arange(ROWS) % 2 == 0),
            "decimal": pa.array(np.arange(ROWS)).cast(pa.decimal128(22, 2)),
            "tiny": pa.array((np.arange(ROWS) % 100).astype(np.int8)),
        }
        dataset, _ = prepared(spark, tmp_path, table(ROWS, **columns), features=tuple(columns))
        row = rows_of(dataset, "train").to_pylist()[0]
        assert row["features"] == [float(c[int(row["key"])].as_py()) for c in columns.values()]

    @pytest.mark.parametrize("element", [pa.float32(), pa.int16()])
    def test_arrays(self, spark: SparkSession, tmp_path: Path, element: pa.DataType) -> None:
        arrays = pa.array([[i, i + 1, i + 2] for i in range(ROWS)], pa.list_(element))
        dataset, _ = prepared(spark, tmp_path, table(x=arrays), features=("x",))
        assert dataset.width == 3
        row = rows_of(dataset, "train").to_pylist()[0]
        assert row["features"] == [float(row["key"]) + i for i in range(3)]

    def test_vectors_dense_and_sparse(self, spark: SparkSession, tmp_path: Path) -> None:
        from pyspark.ml.linalg import Vectors

        rows = [
            (
                i,
                Vectors.dense(float(i), 0.0) if i % 3 else Vectors.sparse(2, [0], [float(i)]),
                i % 2,
            )
            for i in range(ROWS)
        ]
        spark.createDataFrame(rows, ["id", "x", "y"]).write.parquet(str(tmp_path / "source"))
        dataset, _ = prepared(spark, tmp_path, tmp_path / "source", features=("x",))
        for row in rows_of(dataset, "train").to_pylist():
            assert row["features"] == [float(row["key"]), 0.0]

    def test_a_null_vector_is_a_bad_row(self, spark: SparkSession, tmp_path: Path) -> None:
        from pyspark.ml.linalg import Vectors

        rows = [(i, None if i == 7 else Vectors.dense(1.0, 2.0), i % 2) for i in range(20)]
        spark.createDataFrame(rows, ["id", "x", "y"]).write.parquet(str(tmp_path / "source"))
        message = refusal(spark, tmp_path, tmp_path / "source", features=("x",))
        assert "1 where feature 'x' is null (such as key 7)" in message

    def test_names_with_dots_and_brackets(self, spark: SparkSession, tmp_path: Path) -> None:
        names = ("age[years]", "a.b", "c`d", "<e>")
        source = table(ROWS, **{name: np.full(ROWS, float(i)) for i, name in enumerate(names)})
        dataset, _ = prepared(spark, tmp_path, source, features=names)
        assert dataset.features == names
        assert rows_of(dataset, "train").to_pylist()[0]["features"] == [0, 1, 2, 3]

    @pytest.mark.parametrize(
        ("values", "features", "problem"),
        [
            (["x"] * ROWS, ("a", "b"), "has the type string. fix: Make it a number (in 'query' by"),
            ([[1.0]] * ROWS, ("a", "b"), "must be the only feature"),
            ([["x"]] * ROWS, ("a",), "feature column 'a' has the type array<string>"),
        ],
    )
    def test_types_that_are_no_numbers(
        self,
        spark: SparkSession,
        tmp_path: Path,
        values: Any,
        features: tuple[str, ...],
        problem: str,
    ) -> None:
        assert problem in refusal(spark, tmp_path, table(a=values), features=features)

    def test_numbers_that_floats_merge_are_noted(self, spark: SparkSession, tmp_path: Path) -> None:
        large = 16_777_216 + np.arange(ROWS) % 2
        times = 1_700_000_000_000 + np.arange(ROWS)
        prepared(spark, tmp_path, table(large=large, times=times), features=("a", "large", "times"))
        found = notes(tmp_path / "run")
        assert [note.split("'")[1] for note in found] == ["large", "times"]
        assert "epoch milliseconds" in found[1]
