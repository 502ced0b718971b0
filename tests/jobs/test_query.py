"""Rows that a query makes of tables: right, the same each time, or refused with the reason."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_runs import notes, run_in
from prepared_tables import ROWS, all_rows, rows_of

from prepare import prepare_dataset
from trainyard.dataset import Dataset
from trainyard.errors import JobError, SettingError
from trainyard.query import open_query, open_tables, read_query
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = """
-- each order with its customer
SELECT o.id, o.`a.b[c]`, c.age, o.y
FROM orders o LEFT JOIN customers c ON c.name = o.customer;
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """300 orders as Parquet, of 10 customers, 9 of whom a CSV file names."""
    directory = tmp_path_factory.mktemp("tables")
    numbers = np.arange(ROWS)
    orders = {
        "id": numbers,
        "a.b[c]": numbers * 0.5,
        "customer": [f"c{i % 10}" for i in numbers],
        "y": numbers % 3,
    }
    pq.write_table(pa.table(orders), directory / "orders.parquet")
    lines = ["name,age", *(f"c{i},{20 + i}" for i in range(9))]
    (directory / "customers.csv").write_text("\n".join(lines) + "\n")
    return {
        "orders": f"{directory}/orders.parquet",
        "customers": f"{directory}/customers.csv",
    }


def settings(tables: dict[str, str], **more: Any) -> dict[str, Any]:
    plain = {
        "tables": tables,
        "query": QUERY.replace("c.age", "int(c.age) AS age"),
        "features": ("a.b[c]", "age"),
        "label": "y",
        "key": "id",
        "imputation": "keep",
    }
    return {**plain, **more}


def prepared(
    spark: SparkSession, run_dir: Path, tables: dict[str, str], **more: Any
) -> tuple[Dataset, dict[str, Any]]:
    spec = Prepare(run_dir=str(run_dir), **settings(tables, **more))
    with unwrapped():
        result = prepare_dataset(spark, spec, run_in(run_dir))
    return Dataset.read(result["outputs"]["dataset"]), result


def test_a_join_makes_the_rows(spark: SparkSession, tmp_path: Path, tables: dict[str, str]) -> None:
    dataset, result = prepared(spark, tmp_path, tables)

    assert dataset.features == ("a.b[c]", "age")
    rows = all_rows(dataset)
    assert len(rows) == ROWS
    for key, row in rows.items():
        half, age = row["features"]
        assert half == int(key) / 2
        assert age == 20 + int(key) % 10 or (int(key) % 10 == 9 and np.isnan(age))
    assert result["tables"] == {"orders": 300, "customers": 9}
    told = "the query makes 300 rows of 300 in orders, 9 in customers"
    assert told in notes(tmp_path)
    assert dataset.source == "-- each order with its customer ..."


def test_a_join_that_multiplies_rows(
    spark: SparkSession, tmp_path: Path, tables: dict[str, str]
) -> None:
    twice = tmp_path / "customers.csv"
    twice.write_text(Path(tables["customers"]).read_text() + "c4,99\n")
    with pytest.raises(JobError) as caught:
        prepared(spark, tmp_path / "run", {**tables, "customers": str(twice)})
    assert "30 of 330 rows repeat a key, such as '" in caught.value.cause


def test_the_query_runs_once(spark: SparkSession, tmp_path: Path, tables: dict[str, str]) -> None:
    opened = open_tables(spark, tables)
    table = open_query(spark, "q", "SELECT id FROM orders", opened, ["id"])
    try:
        assert table.frame.storageLevel.useDisk
        assert not table.frame.storageLevel.useMemory
    finally:
        table.frame.unpersist()


class TestFingerprint:
    def test_it_covers_the_rows_and_the_query(
        self, spark: SparkSession, tmp_path: Path, tables: dict[str, str]
    ) -> None:
        index = {"datasets": str(tmp_path / "datasets")}
        first, _ = prepared(spark, tmp_path / "1", tables, **index)
        moved = {
            name: str(shutil.copy(path, tmp_path / f"moved-{Path(path).name}"))
            for name, path in tables.items()
        }
        again, _ = prepared(spark, tmp_path / "2", moved, **index)
        assert again == first
        # One customer is a year older.
        text = Path(moved["customers"]).read_text()
        Path(moved["customers"]).write_text(text.replace("c4,24", "c4,25"))
        older, _ = prepared(spark, tmp_path / "3", moved, **index)
        assert older.directory == str(tmp_path / "3" / "data")
        assert older.fingerprint != first.fingerprint
        # The same rows by another query, which dataset.json and the result must not misname.
        text = f"SELECT * FROM ({read_query(settings(tables)['query'])}) x"
        other, _ = prepared(spark, tmp_path / "4", tables, **index, query=text)
        assert rows_of(other, "test").sort_by("key") == rows_of(first, "test").sort_by("key")
        assert other.fingerprint != first.fingerprint

    def test_a_file_and_its_text_are_one_query(
        self, spark: SparkSession, tmp_path: Path, tables: dict[str, str]
    ) -> None:
        text = settings(tables)["query"]
        (tmp_path / "join.sql").write_text(text)
        assert read_query(str(tmp_path / "join.sql")) == read_query(text)
        assert not read_query(text).endswith(";")


@pytest.mark.parametrize(
    ("query", "problem", "fix"),
    [
        ("SELECT * FROM oders", "there is no table 'oders'", "Did you mean 'orders'?"),
        ("SELECT o.ids FROM orders o", "there is no column 'o.ids'", "Did you mean 'id'?"),
        ("SELECT costumer FROM orders", "no column 'costumer'", "Did you mean 'customer'?"),
        ("DROP TABLE orders", "it begins with 'DROP'", "Give a SELECT."),
        ("INSERT INTO orders SELECT 1", "it begins with 'INSERT'", "Give a SELECT."),
        ("SET a = 1", "it begins with 'SET'", "Give a SELECT."),
        ("SELECT id FORM orders o x", "it cannot be parsed: ", "Correct the SELECT."),
        (
            "SELECT o.*, p.id FROM orders o JOIN orders p ON p.id = o.id",
            "it gives several columns the name 'id'",
            "Name each column once",
        ),
        ("SELECT id, 1 AS ID FROM orders", "the name 'ID', 'id'", "Name each column once"),
        ("SELECT id, sum(y) FROM orders", "Spark refuses it: [MISSING_GROUP_BY]", "Correct"),
    ],
)
def test_a_query_that_cannot_be(
    spark: SparkSession, tables: dict[str, str], query: str, problem: str, fix: str
) -> None:
    opened = open_tables(spark, tables)
    with pytest.raises(SettingError) as caught:
        open_query(spark, query, query, opened, ["id"])
    assert problem in caught.value.cause
    assert fix in caught.value.fix
    assert spark.table("orders").count() == ROWS


def test_a_column_that_the_query_does_not_give(spark: SparkSession, tables: dict[str, str]) -> None:
    opened = open_tables(spark, tables)
    with pytest.raises(JobError, match="Did you mean 'total'"):
        open_query(spark, "q", "SELECT id, y AS total FROM orders", opened, ["totl"])


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT id, rand() AS r FROM orders", "rand()"),
        ("SELECT id, uuid() AS r FROM orders", "uuid()"),
        ("SELECT id, shuffle(array(1, 2)) AS r FROM orders", "shuffle()"),
        ("SELECT id FROM orders WHERE rand() < 0.5", "rand()"),
        ("SELECT id, current_timestamp() AS r FROM orders", "current_timestamp()"),
        ("SELECT id, datediff(current_date, DATE'2013-01-01') AS r FROM orders", "current_date()"),
        ("SELECT id, now() AS r FROM orders", "now()"),
        ("SELECT id, (SELECT max(rand()) FROM orders) AS r FROM orders", "rand()"),
        ("WITH x AS (SELECT id, randn() AS r FROM orders) SELECT * FROM x", "randn()"),
        ("SELECT y AS id, first(customer) AS c FROM orders GROUP BY y", "first()"),
        ("SELECT y AS id, collect_list(id) AS c FROM orders GROUP BY y", "collect_list()"),
        ("SELECT id, monotonically_increasing_id() AS r FROM orders", "monotonically"),
        ("SELECT * FROM orders LIMIT 10", "LIMIT or OFFSET without ORDER BY"),
        ("SELECT * FROM orders TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ],
)
def test_what_need_not_be_the_same_again(
    spark: SparkSession, tables: dict[str, str], query: str, named: str
) -> None:
    opened = open_tables(spark, tables)
    with pytest.raises(SettingError) as caught:
        open_query(spark, query, query, opened, ["id"])
    assert named in caught.value.problem
    assert "need not give the same" in caught.value.problem


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, 'rand()' AS r FROM orders",
        "SELECT * FROM orders ORDER BY id LIMIT 10",
        "SELECT id, avg(y) OVER (PARTITION BY customer) AS r FROM orders",
        "SELECT y AS id, max(id) AS m FROM orders GROUP BY y -- the end",
        "(SELECT id FROM orders) UNION ALL (SELECT id FROM orders)",
    ],
)
def test_what_is_the_same_again(spark: SparkSession, tables: dict[str, str], query: str) -> None:
    opened = open_tables(spark, tables)
    open_query(spark, query, query, opened, ["id"]).frame.unpersist()


class TestTables:
    def test_a_malformed_line(
        self, spark: SparkSession, tmp_path: Path, tables: dict[str, str]
    ) -> None:
        path = tmp_path / "customers.csv"
        path.write_text("name,age\nc1,21\nc2\n")
        with pytest.raises(JobError) as caught:
            open_tables(spark, {**tables, "customers": str(path)})
        assert f"'tables' has 'customers': '{path}' has malformed lines, such as 'c2'." in str(
            caught.value
        )

    def test_nothing_there(self, spark: SparkSession) -> None:
        with pytest.raises(JobError, match=r"'tables' has 'x': '/no/x\.csv': nothing is there"):
            open_tables(spark, {"x": "/no/x.csv"})

    def test_a_name_that_needs_quotes(self, spark: SparkSession, tables: dict[str, str]) -> None:
        opened = open_tables(spark, {"my orders.2013": tables["orders"]})
        query = "SELECT id FROM `my orders.2013`"
        table = open_query(spark, query, query, opened, ["id"])
        assert table.frame.count() == ROWS
        table.frame.unpersist()

    def test_one_of_them_where_the_results_go(
        self, spark: SparkSession, tmp_path: Path, tables: dict[str, str]
    ) -> None:
        with pytest.raises(JobError, match="where the results would go"):
            prepared(spark, tmp_path, {**tables, "x": str(tmp_path / "data" / "x.csv")})

    def test_a_text_that_is_no_number(
        self, spark: SparkSession, tmp_path: Path, tables: dict[str, str]
    ) -> None:
        path = tmp_path / "customers.csv"
        path.write_text("name,age\nc1,old\n")
        with pytest.raises(JobError) as caught:
            prepared(spark, tmp_path / "run", {**tables, "customers": str(path)})
        assert "cannot compute a value" in caught.value.cause
        assert "'old'" in caught.value.cause
        assert "try_cast" in caught.value.fix


SELECT = {"query": "SELECT * FROM a"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "setting 'source' is None: there is no query either"),
        ({"source": "x.csv", "tables": {"a": "x"}, **SELECT}, "there is a query too"),
        (SELECT, "setting 'tables' is {}: a query needs them"),
        ({"source": "x.csv", "tables": {"a": "x"}}, "there is no query of them"),
        ({"tables": {"a": ""}, **SELECT}, "'a' names no source"),
        ({"tables": {"a": 7}, **SELECT}, "'a' names no source"),
        ({"tables": {"a": "x", "A": "y"}, **SELECT}, "does not tell 'a' from another"),
        ({"tables": {"a": "x"}, **SELECT, "format": "csv"}, "each table's own name tells it"),
    ],
)
def test_settings_that_contradict(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError) as caught:
        Prepare(run_dir="/r", features=("x",), label="y", **given)
    assert problem in str(caught.value)


def test_a_query_of_several_lines_reaches_the_job() -> None:
    spec = Prepare(run_dir="/r", **settings({"a": "x.csv", "b": "sample:flights"}))
    assert Prepare.parse(spec.argv()) == spec


def test_a_query_that_is_not_packaged() -> None:
    with pytest.raises(SettingError, match="Did you mean 'flight_delays'"):
        read_query("flight_delay")
    with pytest.raises(SettingError, match="nothing is there"):
        read_query("/no/such/query.sql")
