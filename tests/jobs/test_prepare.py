"""A dataset is complete, disjoint, the same however its table lies, and refused when wrong."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_runs import notes
from prepared_tables import ROWS, keys_of, prepared, refusal, rows_of, table

from trainyard import rundir
from trainyard.dataset import KEY, VALUES, Dataset
from trainyard.rows import FAULT, Layout, classify, content_key
from trainyard.specs import SPLITS, Prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestDataset:
    def test_rows_are_complete_disjoint_and_unchanged(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        dataset, result = prepared(spark, tmp_path, table())
        keys = keys_of(dataset)
        assert sorted(int(key) for split in SPLITS for key in keys[split]) == list(range(ROWS))
        for split in SPLITS:
            for row in rows_of(dataset, split).to_pylist():
                number = int(row["key"])
                assert row["features"] == [number * 0.5, number % 7]
                assert dataset.classes[row["label"]] == number % 3
        counts = {split: len(keys[split]) for split in SPLITS}
        assert result["rows"] == {"in": ROWS, "out": ROWS, "quarantined": 0, **counts}
        assert counts["test"] == pytest.approx(60, abs=25)
        assert counts["validation"] == pytest.approx(30, abs=20)

    def test_dataset_json_describes_the_files(self, spark: SparkSession, tmp_path: Path) -> None:
        dataset, _ = prepared(spark, tmp_path, table())
        assert (dataset.width, dataset.classes, dataset.key) == (2, (0, 1, 2), "id")
        for split in SPLITS:
            for file, path in zip(dataset.splits[split], dataset.paths(split), strict=True):
                meta = pq.read_metadata(path)
                groups = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
                assert list(file.row_groups) == groups
                assert set(groups[:-1]) <= {64}
                assert 0 < groups[-1] <= 64
                assert file.bytes == Path(path).stat().st_size
        written = {str(p) for p in Path(dataset.directory).rglob("*.parquet")}
        assert written == {path for split in SPLITS for path in dataset.paths(split)}

    def test_partitions_and_order_of_the_table_do_not_matter(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        plain = spark.createDataFrame(table())
        layouts = {
            "one": plain.coalesce(1),
            "many": plain.repartition(7),
            "backwards": plain.orderBy("id", ascending=False),
            "lopsided": plain.repartition(4, "b"),
        }
        made = {}
        for name, frame in layouts.items():
            frame.write.parquet(str(tmp_path / name / "source"))
            dataset, result = prepared(spark, tmp_path / name, tmp_path / name / "source")
            tables = [rows_of(dataset, split).to_pylist() for split in SPLITS]
            made[name] = (tables, result["fingerprints"]["dataset"])
        assert all(other == made["one"] for other in made.values())

    def test_rows_are_shuffled(self, spark: SparkSession, tmp_path: Path) -> None:
        dataset, _ = prepared(spark, tmp_path, table())
        order = [int(key) for key in keys_of(dataset)["train"]]
        assert abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 0.3

    def test_a_row_keeps_its_split_when_rows_are_added(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        before, _ = prepared(spark, tmp_path / "1", _in(tmp_path / "1", table()))
        after, _ = prepared(spark, tmp_path / "2", _in(tmp_path / "2", table(2 * ROWS)))
        for split in SPLITS:
            assert set(keys_of(before)[split]) <= set(keys_of(after)[split])

    def test_another_seed_is_another_split(self, spark: SparkSession, tmp_path: Path) -> None:
        first, a = prepared(spark, tmp_path / "1", _in(tmp_path / "1", table()))
        second, b = prepared(spark, tmp_path / "2", _in(tmp_path / "2", table()), split_seed=1)
        assert set(keys_of(first)["test"]) != set(keys_of(second)["test"])
        assert a["fingerprints"] != b["fingerprints"]

    def test_the_fingerprint_follows_the_content(self, spark: SparkSession, tmp_path: Path) -> None:
        changed = table(a=np.arange(ROWS) * 0.5 + (np.arange(ROWS) == 17) * 1e-3)
        prints = set()
        for name, source in (("1", table()), ("2", table()), ("3", changed)):
            _, result = prepared(spark, tmp_path / name, _in(tmp_path / name, source))
            prints.add(result["fingerprints"]["dataset"])
        assert len(prints) == 2

    def test_a_second_attempt_leaves_nothing_of_the_first(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        leftover = tmp_path / "run" / "data" / "train" / "c0000-00000-0.parquet"
        leftover.parent.mkdir(parents=True)
        leftover.write_bytes(b"half a file")
        prepared(spark, tmp_path, table())
        assert not leftover.exists()

    def test_no_validation_split(self, spark: SparkSession, tmp_path: Path) -> None:
        dataset, result = prepared(spark, tmp_path, table(), validation_fraction=0)
        assert dataset.splits["validation"] == ()
        assert result["rows"]["validation"] == 0


def _in(directory: Path, source: pa.Table) -> Path:
    directory.mkdir()
    pq.write_table(source, directory / "source.parquet")
    return directory / "source.parquet"


class TestKeys:
    def test_without_a_key_equal_rows_share_a_split(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        twice = pa.concat_tables([table(40), table(40)]).drop_columns(["id"])
        dataset, result = prepared(spark, tmp_path, twice, key=None)
        assert result["rows"]["out"] == 80
        split_of: dict[str, set[str]] = {}
        for split, keys in keys_of(dataset).items():
            for key in keys:
                split_of.setdefault(key.split("-")[0], set()).add(split)
        keys = [key for found in keys_of(dataset).values() for key in found]
        assert len(set(keys)) == 80
        assert len(split_of) == 40
        assert all(len(splits) == 1 for splits in split_of.values())

    def test_a_key_that_repeats(self, spark: SparkSession, tmp_path: Path) -> None:
        message = refusal(spark, tmp_path, table(id=np.arange(ROWS) // 2 * 2))
        assert "key column 'id' does not tell rows apart: 150 of 300 rows repeat a key" in message

    def test_texts_are_keys(self, spark: SparkSession, tmp_path: Path) -> None:
        dataset, _ = prepared(spark, tmp_path, table(id=[f"ключ {i}" for i in range(ROWS)]))
        assert "ключ 7" in {key for keys in keys_of(dataset).values() for key in keys}


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
            (["x"] * ROWS, ("a", "b"), "feature column 'a' has the type string"),
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


class TestBadRows:
    def test_each_kind_is_counted_with_examples(self, spark: SparkSession, tmp_path: Path) -> None:
        bad = {5: {"a": None}, 17: {"a": None}, 20: {"y": None}, 30: {"id": None}}
        rows = [row | bad.get(row["id"], {}) for row in table().to_pylist()]
        message = refusal(spark, tmp_path, pa.Table.from_pylist(rows, table().schema))
        assert f"4 of 300 rows of '{tmp_path}/source.parquet' are bad: 2 where" in message
        for fault in (
            "2 where feature 'a' is null (such as key 5, key 17)",
            "1 where label 'y' is null (such as key 20)",
            "1 where key 'id' is null (such as key None)",
        ):
            assert fault in message

    @pytest.mark.parametrize(
        ("values", "fault"),
        [
            (None, "is null"),
            ([1.0, None], "is null"),
            ([1.0, float("nan")], "is not a number (NaN)"),
            ([float("-inf"), 1.0], "is infinite"),
            ([1.0, 1e300], "is too large for a 32-bit float"),
            ([1.0], "has 1 numbers instead of 2"),
        ],
    )
    def test_each_fault_names_its_column(
        self, values: list[float | None] | None, fault: str
    ) -> None:
        batch = pa.record_batch(
            {
                VALUES: pa.array([[1.0, 2.0], values, [3.0, 4.0]], pa.list_(pa.float64())),
                KEY: pa.array(["1", "2", "3"]),
                FAULT: pa.nulls(3, pa.string()),
            }
        )
        found = classify(batch, Layout(numbers=("a", "b"), width=2, key="id"))
        column = "b" if values and len(values) == 2 and values[0] == 1 else "a"
        assert found.faults == {1: f"feature {column!r} {fault}"}

    def test_ragged_arrays(self, spark: SparkSession, tmp_path: Path) -> None:
        arrays = [[1.0] * (4 if i == 0 else 3) for i in range(ROWS)]
        message = refusal(spark, tmp_path, table(x=arrays), features=("x",))
        assert "1 where feature 'x' has 4 numbers instead of 3 (such as key 0)" in message

    def test_a_null_within_an_array(self, spark: SparkSession, tmp_path: Path) -> None:
        arrays = [[1.0, None if i == 9 else 2.0] for i in range(ROWS)]
        message = refusal(spark, tmp_path, table(x=arrays), features=("x",))
        assert "1 where feature 'x' holds a null (such as key 9)" in message

    @pytest.mark.parametrize("arrays", [[[]] * ROWS, [None] * ROWS])
    def test_arrays_without_numbers(self, spark: SparkSession, tmp_path: Path, arrays: Any) -> None:
        values = pa.array(arrays, pa.list_(pa.float64()))
        assert "300 of 300 rows" in refusal(spark, tmp_path, table(x=values), features=("x",))

    def test_without_a_key_the_row_itself_is_shown(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        rows = [row | {"b": None} if row["id"] == 5 else row for row in table().to_pylist()]
        source = pa.Table.from_pylist(rows, table().schema)
        assert "such as the row [2.5, nan]" in refusal(spark, tmp_path, source, key=None)

    def test_an_empty_table(self, spark: SparkSession, tmp_path: Path) -> None:
        assert "it has 0 rows" in refusal(spark, tmp_path, table(0))

    def test_a_missing_column(self, spark: SparkSession, tmp_path: Path) -> None:
        message = refusal(spark, tmp_path, table(), features=("a", "B"))
        assert "has no column 'B'" in message
        assert "Did you mean 'b'?" in message

    def test_a_source_where_the_dataset_would_go(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        source = _in(tmp_path / "run" / "data", table())
        assert "where the results would go too" in refusal(spark, tmp_path, source)
        assert source.exists()

    def test_an_empty_split_shows_its_arithmetic(self, spark: SparkSession, tmp_path: Path) -> None:
        message = refusal(spark, tmp_path, table(6), validation_fraction=0.01)
        assert "the validation split has 0 of 6 rows, where 6 x 0.01 = 0.1 were expected" in message


class TestCsv:
    def test_text_is_read_as_numbers_and_classes(self, spark: SparkSession, tmp_path: Path) -> None:
        lines = [f"{i % 2}.0,{i},{i / 4},{i}" for i in range(100)]
        source = tmp_path / "x.csv"
        source.write_text("\n".join(["y,b,a,id", *lines]))
        dataset, _ = prepared(spark, tmp_path, source)
        assert dataset.classes == (0, 1)
        for row in rows_of(dataset, "train").to_pylist():
            assert row["features"] == [int(row["key"]) / 4, int(row["key"])]

    def test_what_is_no_number_or_a_broken_line_is_a_bad_row(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        lines = ["y,b,a,id", "0,1,2,1", "1,x,2,2", "0,,2,3", "1,1", "0,1,2,5"]
        source = tmp_path / "x.csv"
        source.write_text("\n".join(lines))
        message = refusal(spark, tmp_path, source)
        assert "3 of 5 rows" in message
        assert "1 where feature 'b' is no number (such as key 2)" in message
        assert "1 where feature 'b' is null (such as key 3)" in message
        assert "1 where the line is malformed" in message

    def test_labels_with_leading_zeros_stay_texts(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        source = tmp_path / "x.csv"
        source.write_text("\n".join(["y,b,a,id", *(f"0{i % 2}7,1,2,{i}" for i in range(100))]))
        dataset, _ = prepared(spark, tmp_path, source)
        assert dataset.classes == ("007", "017")


numbers = st.none() | st.floats() | st.integers(-9, 9).map(float)


@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.lists(numbers, max_size=4), st.none() | st.text(), st.none() | st.text()
        ),
        max_size=30,
    ),
    missing=st.booleans(),
    keyed=st.booleans(),
)
def test_a_row_is_bad_exactly_when_it_cannot_be_used(
    rows: list[tuple[Any, Any, Any]], missing: bool, keyed: bool
) -> None:
    batch = pa.record_batch(
        {
            VALUES: pa.array([row[0] for row in rows], pa.list_(pa.float64())),
            FAULT: pa.array([row[1] for row in rows], pa.string()),
            KEY: pa.array([row[2] for row in rows], pa.string()),
        }
    )
    layout = Layout(numbers=("x",), width=2, missing=missing, key="id" if keyed else None)
    found = classify(batch, layout)

    def usable(values: list[float | None] | None, fault: str | None) -> bool:
        if values is None or len(values) != 2 or fault is not None:
            return False
        with np.errstate(over="ignore"):
            numbers = np.array(values, np.float64).astype(np.float32)
        return bool((np.isfinite(numbers) | (missing & np.isnan(numbers))).all())

    good = [i for i, row in enumerate(rows) if usable(row[0], row[1])]
    assert found.good.tolist() == good
    for i in good:
        given_row = np.array(rows[i][0], np.float64)
        assert np.array_equal(found.values[i], given_row, equal_nan=True)
        expected = rows[i][2] if keyed else content_key(given_row)
        assert found.keys[i].as_py() == expected


def test_the_program_runs_from_anywhere(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "jobs" / "prepare.py"
    spec = Prepare(
        run_dir=str(tmp_path / "run"),
        source="sample:breast_cancer",
        features=("mean_radius", "mean_texture"),
        label="diagnosis",
        key="id",
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [submit, "--master", "local[2]", program, *spec.argv()],
        cwd="/",
        env=environment | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = rundir.read_result(spec.run_dir)
    assert result is not None
    assert (result["job"], result["rows"]["in"]) == ("prepare", 569)
    dataset = Dataset.read(result["outputs"]["dataset"])
    assert dataset.classes == ("benign", "malignant")
    assert (
        dataclasses.replace(dataset, directory="").fingerprint == result["fingerprints"]["dataset"]
    )
