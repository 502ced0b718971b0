"""Splits by class, by time and by a column; labels of a regression; weights and kept columns."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from prepared_tables import ROWS, all_rows, prepared, refusal, spec_for, table
from pyspark.sql.types import StringType

from trainyard.columns import time_of
from trainyard.dataset import Dataset
from trainyard.errors import SettingError
from trainyard.specs import SPLITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def splits_of(dataset: Any) -> dict[int, str]:
    return {int(key): row["split"] for key, row in all_rows(dataset).items()}


class TestStratified:
    def test_each_class_gets_its_share(self, spark: SparkSession, tmp_path: Path) -> None:
        labels = np.repeat(["common", "rare"], [270, 30])
        dataset, _ = prepared(spark, tmp_path, table(y=labels), stratify=True)
        counts = Counter((labels[i], split) for i, split in splits_of(dataset).items())
        assert counts == {
            ("common", "train"): 189,
            ("common", "validation"): 27,
            ("common", "test"): 54,
            ("rare", "train"): 21,
            ("rare", "validation"): 3,
            ("rare", "test"): 6,
        }

    def test_a_key_that_repeats_in_another_class(self, spark: SparkSession, tmp_path: Path) -> None:
        keys = np.arange(ROWS)
        keys[1] = 0
        message = refusal(spark, tmp_path, table(id=keys), stratify=True)
        assert "1 of 300 rows repeat a key, such as '0'" in message


class TestTime:
    @pytest.mark.parametrize("kind", ["timestamp", "date", "number", "text"])
    def test_later_rows_judge(self, spark: SparkSession, tmp_path: Path, kind: str) -> None:
        order = np.random.default_rng(0).permutation(ROWS)
        times: dict[str, list[Any]] = {
            "timestamp": [
                datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=int(i)) for i in order
            ],
            "date": [date(2026, 1, 1) + timedelta(days=int(i)) for i in order],
            "number": order.tolist(),
            "text": [
                str(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=int(i))) for i in order
            ],
        }
        dataset, _ = prepared(
            spark, tmp_path, table(when=times[kind]), split_by="time", split_column="when"
        )
        splits = [splits_of(dataset)[i] for i in np.argsort(order).tolist()]
        assert splits == ["train"] * 210 + ["validation"] * 30 + ["test"] * 60

    def test_rows_of_one_time_stay_together(self, spark: SparkSession, tmp_path: Path) -> None:
        days = np.repeat(np.arange(10), 30)
        named = {"split_by": "time", "split_column": "day"}
        dataset, _ = prepared(spark, tmp_path, table(day=days), **named)
        found = splits_of(dataset)
        of_day = {day: {found[i] for i in range(ROWS) if days[i] == day} for day in (0, 6, 7, 8, 9)}
        assert of_day == {
            0: {"train"},
            6: {"train"},
            7: {"validation"},
            8: {"test"},
            9: {"test"},
        }

    def test_one_time_only_leaves_nothing_to_judge(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        named = {"split_by": "time", "split_column": "day"}
        message = refusal(spark, tmp_path, table(day=np.ones(ROWS)), **named)
        assert "the validation split has 0 of 300 rows, where 300 x 0.1 = 30.0 were" in message
        assert "Rows of one 'day' stay together." in message

    def test_no_time(self, spark: SparkSession, tmp_path: Path) -> None:
        times = pa.array([None if i == 3 else i for i in range(ROWS)])
        named = {"split_by": "time", "split_column": "when"}
        message = refusal(spark, tmp_path, table(when=times), **named)
        assert "1 where split column 'when' is no time (such as key 3)" in message


FROM = {
    "split_by": "time",
    "split_column": "when",
    "validation_from": "2026-01-11",
    "test_from": "2026-01-13T12:00+01:00",
    "holdout_from": "2026-01-16 00:00",
}


class TestDates:
    @pytest.mark.parametrize("kind", ["timestamp", "text"])
    def test_splits_begin_at_dates(self, spark: SparkSession, tmp_path: Path, kind: str) -> None:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        times = [start + timedelta(hours=int(i)) for i in np.arange(ROWS) * 2]
        when = times if kind == "timestamp" else [str(time) for time in times]
        dataset, result = prepared(spark, tmp_path, table(when=when), **FROM)
        test, holdout = datetime(2026, 1, 13, 11, tzinfo=UTC), datetime(2026, 1, 16, tzinfo=UTC)
        wanted = {
            i: "holdout"
            if time >= holdout
            else "test"
            if time >= test
            else "validation"
            if time >= datetime(2026, 1, 11, tzinfo=UTC)
            else "train"
            for i, time in enumerate(times)
        }
        assert splits_of(dataset) == wanted
        assert {name: result["rows"][name] for name in SPLITS} == {
            name: list(wanted.values()).count(name) for name in SPLITS
        }
        assert result["rows"]["holdout"] == 120

    def test_numbers_without_validation(self, spark: SparkSession, tmp_path: Path) -> None:
        named = {"split_by": "time", "split_column": "a", "test_from": "100"}
        dataset, _ = prepared(spark, tmp_path, table(), **{**named, "features": ("b",)})
        assert splits_of(dataset) == {i: "test" if i >= 200 else "train" for i in range(ROWS)}
        assert (dataset.rows("validation"), dataset.rows("holdout")) == (0, 0)

    def test_a_date_in_a_column_of_numbers(self, spark: SparkSession, tmp_path: Path) -> None:
        message = refusal(spark, tmp_path, table(when=np.arange(ROWS)), **FROM)
        assert "'validation_from' is '2026-01-11': the column 'when' has the type bigint" in message
        assert "Give a number." in message

    def test_no_rows_from_a_date_on(self, spark: SparkSession, tmp_path: Path) -> None:
        days = [date(2026, 1, 1) + timedelta(days=i % 15) for i in range(ROWS)]
        message = refusal(spark, tmp_path, table(when=days), **FROM)
        assert "the holdout split has 0 of 300 rows by column 'when'" in message
        assert "'holdout_from' is '2026-01-16 00:00'" in message


def test_a_dataset_of_before_has_no_holdout(spark: SparkSession, tmp_path: Path) -> None:
    dataset, _ = prepared(spark, tmp_path, table())
    path = Path(dataset.directory) / "dataset.json"
    described = json.loads(path.read_text())
    assert described["splits"].pop("holdout") == []
    path.write_text(json.dumps(described))
    assert Dataset.read(dataset.directory) == dataset


class TestColumn:
    def test_the_source_says_it(self, spark: SparkSession, tmp_path: Path) -> None:
        part = [SPLITS[(i // 7) % 3] for i in range(ROWS)]
        named = {"split_by": "column", "split_column": "part"}
        dataset, _ = prepared(spark, tmp_path, table(part=part), **named)
        assert splits_of(dataset) == dict(enumerate(part))

    def test_another_name_and_a_missing_split(self, spark: SparkSession, tmp_path: Path) -> None:
        part = ["tset" if i == 9 else "train" for i in range(ROWS)]
        named = {"split_by": "column", "split_column": "part"}
        message = refusal(spark, tmp_path, table(part=part), **named)
        assert "1 where split column 'part' is none of train, validation, test, holdout" in message
        message = refusal(spark, tmp_path, table(part=["train"] * ROWS), **named)
        assert "the test split has 0 of 300 rows: none has 'test' in column 'part'" in message


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"split_by": "time"}, "a split by time needs a column"),
        ({**FROM, "split_by": "column"}, "a split by column has no times"),
        ({**FROM, "test_from": None}, "'test_from' is None: validation_from is '2026-01-11', and"),
        ({**FROM, "test_from": "2026-01-11"}, "it does not come after validation_from"),
        ({**FROM, "holdout_from": "20260116"}, "it does not come after test_from"),
        ({**FROM, "test_from": "soon"}, "'soon': it is no date, time or number"),
        ({"split_column": "a"}, "a split by hash uses none"),
        ({"split_by": "time", "split_column": "y"}, "it is the label"),
        ({"stratify": True, "task": "regression"}, "a regression has no classes"),
        ({"stratify": True, "split_by": "column", "split_column": "p"}, "a split by column has"),
        ({"weight": "a"}, "column 'a' has two roles"),
        ({"categorical": ("A",)}, "column 'A' is no feature. fix: Did you mean 'a'?"),
        ({"keep": ("a", "a")}, "a column repeats"),
    ],
)
def test_settings_that_contradict(tmp_path: Path, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError) as caught:
        spec_for("x.parquet", tmp_path, **settings)
    assert problem in str(caught.value)


class TestRegression:
    @pytest.mark.parametrize("integers", [True, False])
    def test_numbers_stay_as_they_are(
        self, spark: SparkSession, tmp_path: Path, integers: bool
    ) -> None:
        labels = np.arange(ROWS) - 7 if integers else np.arange(ROWS) / 3
        dataset, _ = prepared(spark, tmp_path, table(y=labels), task="regression")
        assert (dataset.task, dataset.classes, dataset.outputs) == ("regression", (), 1)
        assert {int(k): row["label"] for k, row in all_rows(dataset).items()} == {
            i: float(label) for i, label in enumerate(labels)
        }

    def test_what_is_no_number(self, spark: SparkSession, tmp_path: Path) -> None:
        labels: list[Any] = [float(i) for i in range(ROWS)]
        labels[1], labels[2], labels[3] = float("nan"), float("-inf"), None
        message = refusal(spark, tmp_path, table(y=labels), task="regression")
        assert "1 where label 'y' is not a number (NaN) (such as key 1)" in message
        assert "1 where label 'y' is infinite (such as key 2)" in message
        assert "1 where label 'y' is null (such as key 3)" in message

    def test_texts_and_one_value(self, spark: SparkSession, tmp_path: Path) -> None:
        named = {"task": "regression"}
        message = refusal(spark, tmp_path, table(y=["x"] * ROWS), **named)
        assert "label column 'y' has the type string" in message
        message = refusal(spark, tmp_path, table(y=np.full(ROWS, 2.5)), **named)
        assert "label column 'y' has one value only: 2.5 in all 300 rows" in message


class TestCarried:
    def test_weights_and_kept_columns(self, spark: SparkSession, tmp_path: Path) -> None:
        source = table(
            w=np.arange(ROWS) / 2,
            place=pa.array([None if i == 5 else "xyz"[i % 3] for i in range(ROWS)]),
        )
        dataset, _ = prepared(spark, tmp_path, source, weight="w", keep=("place", "b"))
        assert (dataset.weight, dataset.keep) == ("w", ("place", "b"))
        rows = all_rows(dataset)
        assert all(row["weight"] == int(key) / 2 for key, row in rows.items())
        assert rows["5"]["keep"] == [None, "5"]
        assert rows["6"]["keep"] == ["x", "6"]

    def test_weights_that_are_none(self, spark: SparkSession, tmp_path: Path) -> None:
        weights: list[Any] = [1.0] * ROWS
        weights[1], weights[2], weights[3] = None, -1.0, float("inf")
        message = refusal(spark, tmp_path, table(w=weights), weight="w")
        assert "1 where weight 'w' is null (such as key 1)" in message
        assert "1 where weight 'w' is negative (such as key 2)" in message
        assert "1 where weight 'w' is infinite (such as key 3)" in message


def test_a_text_is_a_time_by_its_date_or_a_finite_number(spark: SparkSession) -> None:
    texts = ["2013-09-01", "17", "-1.5e3", "05:00", "inf", "-Infinity", "NaN", "soon", None]
    frame = spark.createDataFrame([(text,) for text in texts], "t string")
    found = [row[0] for row in frame.select(time_of("t", StringType())).collect()]
    assert found == [1377993600e6, 17.0, -1500.0, *[None] * 6]
