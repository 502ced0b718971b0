"""A schema is read strictly; bad rows are counted and put aside; a report says what was found."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_runs import notes
from prepared_tables import ROWS, all_rows, prepared, refusal, table

from trainyard.errors import SettingError
from trainyard.schema import read_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def schema(**columns: Any) -> str:
    return json.dumps({"columns": columns})


def with_rows(changes: dict[int, dict[str, Any]], rows: int = ROWS) -> pa.Table:
    plain = table(rows)
    changed = [row | changes.get(row["id"], {}) for row in plain.to_pylist()]
    return pa.Table.from_pylist(changed, plain.schema)


class TestReading:
    @pytest.mark.parametrize(
        ("named", "problem"),
        [
            ("minst", "there is no such packaged schema. fix: Did you mean 'mnist'?"),
            ("/nothing.json", "nothing is there"),
            ("{oops", "it is no JSON"),
            ('{"columns": []}', "'columns' is no mapping"),
            ('{"colums": {}}', "a schema has no 'colums'. fix: Did you mean 'columns'?"),
            (
                schema(a={"type": "numbr"}),
                "column 'a' has the type 'numbr'. fix: Did you mean 'number'?",
            ),
            (schema(a={"type": "number", "nulable": True}), "Did you mean 'nullable'?"),
            (schema(a={"type": "number", "minimum": "0"}), "column 'a' has '0' as its 'minimum'"),
            (schema(a={"type": "array", "width": True}), "column 'a' has True as its 'width'"),
        ],
    )
    def test_what_is_no_schema(self, named: str, problem: str) -> None:
        with pytest.raises(SettingError) as caught:
            read_schema(named)
        assert str(caught.value).startswith("cause: setting 'schema' is ")
        assert problem in str(caught.value)

    def test_a_file_and_its_text_are_one(self, tmp_path: Path) -> None:
        text = schema(a={"type": "integer", "values": [1, 2]}, b={"type": "text", "nullable": True})
        (tmp_path / "x.json").write_text(text)
        assert read_schema(str(tmp_path / "x.json")) == read_schema(text)
        assert read_schema(text).columns["a"].values == (1, 2)

    def test_the_packaged_one(self) -> None:
        pixels = read_schema("mnist").columns["pixels"]
        assert (pixels.width, pixels.minimum, pixels.maximum) == (784, 0, 255)


class TestRules:
    def test_each_kind_of_fault_is_counted_by_column(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        arrays: list[Any] = [[1.0, 2.0, 3.0] for _ in range(ROWS)]
        arrays[1], arrays[2], arrays[3], arrays[4] = None, [1.0], [1.0, None, 3.0], [1.0, 2.0, 99.0]
        source = table(
            b=[float(i) for i in range(5)] + [0.5] + [float("nan")] + [8.0] * (ROWS - 7),
            x=pa.array(arrays, pa.list_(pa.float64())),
            t=["u" if i == 8 else "red" for i in range(ROWS)],
            w=[datetime(2026, 1, 1, tzinfo=UTC)] * 9
            + [None]
            + [datetime(2026, 1, 1, tzinfo=UTC)] * (ROWS - 10),
        )
        rules = schema(
            id={"type": "integer", "minimum": 1},
            b={"type": "integer", "maximum": 8},
            x={"type": "array", "width": 3, "maximum": 50},
            t={"type": "text", "values": ["red", "green"]},
            w={"type": "timestamp"},
        )
        message = refusal(spark, tmp_path, source, schema=rules, features=("a",))
        report = json.loads((tmp_path / "run" / "report" / "validation.json").read_text())
        assert {bad["reason"]: (bad["rows"], bad["examples"]) for bad in report["bad"]} == {
            "column 'id' is below 1": (1, ["key 0"]),
            "column 'x' is null": (1, ["key 1"]),
            "column 'x' has not 3 numbers": (1, ["key 2"]),
            "column 'x' holds a null": (1, ["key 3"]),
            "column 'x' is above 50": (1, ["key 4"]),
            "column 'b' is not of type integer": (1, ["key 5"]),
            "column 'b' is not a number (NaN)": (1, ["key 6"]),
            "column 't' is none of the schema's values": (1, ["key 8"]),
            "column 'w' is null": (1, ["key 9"]),
        }
        assert "9 of 300 rows" in message
        assert "and 4 more kinds; setting 'bad_rows' allows 0 x 300 = 0" in message
        assert report["rows"] == {"in": 300, "bad": 9, "allowed": 0.0}

    @pytest.mark.parametrize(
        ("rules", "problem"),
        [
            (schema(a={"type": "text"}), "column 'a' is double, but the schema says text"),
            (schema(y={"type": "array"}), "column 'y' is bigint, but the schema says array"),
            (schema(A={"type": "number"}), "has no column 'A'; it has 4. fix: Did you mean 'a'?"),
        ],
    )
    def test_other_columns_than_the_schema_says(
        self, spark: SparkSession, tmp_path: Path, rules: str, problem: str
    ) -> None:
        assert problem in refusal(spark, tmp_path, table(), schema=rules)

    def test_text_is_checked_as_what_it_stands_for(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        lines = ["y,b,a,id,day", "0,1,2.5,1,2026-01-01", "1,x,2,2,2026-01-02", "0,1,2,3,soon"]
        source = tmp_path / "x.csv"
        source.write_text("\n".join(lines))
        rules = schema(b={"type": "integer"}, day={"type": "timestamp"})
        message = refusal(spark, tmp_path, source, schema=rules)
        assert "1 where column 'b' is not of type integer (such as key 2)" in message
        assert "1 where column 'day' is not of type timestamp (such as key 3)" in message

    def test_the_packaged_schema_fits_the_sample(self, spark: SparkSession, tmp_path: Path) -> None:
        named = {"features": ("pixels",), "label": "digit", "schema": "mnist"}
        dataset, result = prepared(spark, tmp_path, "sample:mnist", **named)
        assert result["rows"]["out"] == 5000
        assert dataset.classes == tuple(range(10))


class TestQuarantine:
    def test_within_the_budget_bad_rows_are_put_aside(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        source = with_rows({5: {"a": None}, 20: {"y": None}, 30: {"b": 99}})
        rules = schema(b={"type": "integer", "maximum": 10})
        dataset, result = prepared(spark, tmp_path, source, bad_rows=0.01, schema=rules)
        rows = result["rows"]
        assert (rows["in"], rows["out"], rows["quarantined"]) == (300, 297, 3)
        assert set(map(str, range(ROWS))) - set(all_rows(dataset)) == {"5", "20", "30"}
        aside = {
            row["key"]: row for row in pq.read_table(result["outputs"]["quarantine"]).to_pylist()
        }
        assert {key: row["reason"] for key, row in aside.items()} == {
            "5": "feature 'a' is null",
            "20": "label 'y' is null",
            "30": "column 'b' is above 10",
        }
        assert json.loads(aside["5"]["row"]) == {"a": None, "b": 5, "y": 2, "id": 5}
        assert any("3 of 300 rows are bad and in quarantine" in n for n in notes(tmp_path / "run"))

    def test_one_more_is_an_error(self, spark: SparkSession, tmp_path: Path) -> None:
        source = with_rows({i: {"a": None} for i in range(4)})
        message = refusal(spark, tmp_path, source, bad_rows=0.01)
        assert "4 where feature 'a' is null (such as key 0, key 1, key 2)" in message
        assert "setting 'bad_rows' allows 0.01 x 300 = 3" in message

    def test_a_broken_line_is_kept_as_it_was(self, spark: SparkSession, tmp_path: Path) -> None:
        lines = ["y,b,a,id", *(f"{i % 2},{i},{i},{i}" for i in range(60)), "1,1", "0,x,1,61"]
        source = tmp_path / "x.csv"
        source.write_text("\n".join(lines))
        _, result = prepared(spark, tmp_path, source, bad_rows=0.1)
        aside = pq.read_table(result["outputs"]["quarantine"]).to_pylist()
        assert sorted((row["reason"], row["row"]) for row in aside) == [
            ("feature 'b' is no number", '{"a":"1","b":"x","y":"0","id":"61"}'),
            ("the line is malformed", "1,1"),
        ]


class TestFindings:
    def test_columns_that_teach_nothing_or_lose_digits(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        source = table(same=np.full(ROWS, 4.0), large=2**24 + np.arange(ROWS) % 2)
        named = {"features": ("a", "same", "large"), "findings": "refuse"}
        message = refusal(spark, tmp_path, source, **named)
        assert "2 suspicious columns" in message
        assert "feature 'same' is 4 in every row" in message
        assert "feature 'large' has whole numbers up to 16777217" in message

    def test_the_report_describes_each_column(self, spark: SparkSession, tmp_path: Path) -> None:
        arrays = pa.array([[0.0, float(i)] for i in range(ROWS)], pa.list_(pa.float64()))
        prepared(spark, tmp_path, table(x=arrays), features=("x",))
        report = json.loads((tmp_path / "run" / "report" / "validation.json").read_text())
        assert report["features"]["x"] == {
            "minimum": 0.0,
            "maximum": 299.0,
            "whole": True,
            "missing": 0,
            "constant": 1,
            "width": 2,
        }
        assert report["labels"] == {"0": 100, "1": 100, "2": 100}


cell = st.none() | st.floats() | st.sampled_from([0.0, 1e300, -3.5])


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    bad=st.lists(st.tuples(cell, cell), max_size=25),
    labels=st.sampled_from([("b", "a"), (3, -1), (0.0, 2.0), (True, False), ("1", "x")]),
    partitions=st.integers(1, 5),
)
def test_every_row_is_in_one_split_or_in_quarantine(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    bad: list[tuple[Any, Any]],
    labels: tuple[Any, Any],
    partitions: int,
) -> None:
    tmp_path = tmp_path_factory.mktemp("any")
    numbers = [(float(i), float(-i)) for i in range(60)] + bad
    rows = len(numbers)
    source = pa.table(
        {
            "id": list(range(rows)),
            "a": pa.array([a for a, _ in numbers], pa.float64()),
            "b": pa.array([b for _, b in numbers], pa.float64()),
            "y": [labels[i % 2] for i in range(rows)],
        }
    )
    frame = spark.createDataFrame(source).repartition(partitions)
    frame.write.parquet(str(tmp_path / "source"))
    dataset, result = prepared(spark, tmp_path, tmp_path / "source", bad_rows=0.9)

    with np.errstate(over="ignore"):
        good = {
            str(i)
            for i, pair in enumerate(numbers)
            if None not in pair and np.isfinite(np.array(pair).astype(np.float32)).all()
        }
    found = all_rows(dataset)
    assert set(found) == good
    assert all(dataset.classes[row["label"]] == labels[int(key) % 2] for key, row in found.items())
    counts = result["rows"]
    assert counts["in"] == rows == counts["out"] + counts["quarantined"]
    assert counts["out"] == len(good) == sum(counts[s] for s in ("train", "validation", "test"))
    if counts["quarantined"]:
        aside = pq.read_table(result["outputs"]["quarantine"])["key"].to_pylist()
        assert sorted([*aside, *good]) == sorted(str(i) for i in range(rows))
