"""Rows that cannot be used: each is counted by what is wrong with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prepared_tables import ROWS, prepared, refusal, rows_of, table, written_in

from trainyard.dataset import KEY, VALUES
from trainyard.errors import JobError
from trainyard.faults import Faults
from trainyard.rows import FAULT, Layout, classify, content_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("rows", "fix"), [(3, "No good row is left"), (4, "raise 'bad_rows'")])
def test_quarantine_is_no_way_out_where_no_good_row_is_left(rows: int, fix: str) -> None:
    faults = Faults(counts=Counter({"feature 'day' is no number": 3}))
    faults.examples["feature 'day' is no number"] = ["key 1"]
    with pytest.raises(JobError, match=fix):
        faults.check(rows, "loans.csv", allowed=0.1)


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
        source = written_in(tmp_path / "run" / "data", table())
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
