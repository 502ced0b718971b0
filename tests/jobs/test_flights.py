"""The packaged flights query: nothing of what a flight did, or of a later hour, is a feature."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from trainyard.query import open_query, read_query
from trainyard.samples import SAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTCOMES = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
LABELS = ("late", "arr_delay")
QUERY = read_query("flight_delays")
GOLDEN = Path(__file__).parents[1] / "golden" / "flight_delays_xgboost.prepare.json"


@pytest.fixture(scope="module")
def samples() -> dict[str, pa.Table]:
    """All flights of two days, one of storms, and all weather and planes."""
    whole = {name: SAMPLES[name]() for name in ("flights", "weather", "planes")}
    flights = whole["flights"]
    days = pc.is_in(
        pc.add(pc.multiply(flights["month"], 100), flights["day"]), pa.array([308, 510])
    )
    return {**whole, "flights": flights.filter(days)}


def rows(
    spark: SparkSession, tables: dict[str, pa.Table], query: str = QUERY
) -> dict[str, dict[str, Any]]:
    """The query's rows by key."""
    frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    columns = spark.sql(query).columns
    table = open_query(spark, "flight_delays", query, frames, columns)
    found = [row.asDict() for row in table.frame.collect()]
    table.frame.unpersist()
    by_key = {row["flight"]: row for row in found}
    assert len(by_key) == len(found), "the key repeats"
    return by_key


def features(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        key: {name: value for name, value in row.items() if name not in LABELS}
        for key, row in found.items()
    }


def scrambled(table: pa.Table, columns: tuple[str, ...], where: Any = None) -> pa.Table:
    """Other numbers in these columns of the rows; which are missing stays."""
    random = np.random.default_rng(0)
    for name in columns:
        old = table[name].combine_chunks()
        new = pa.array(random.integers(0, 2000, len(old))).cast(old.type)
        chosen = old.is_valid() if where is None else pc.and_(old.is_valid(), where)
        table = table.set_column(table.column_names.index(name), name, pc.if_else(chosen, new, old))
    return table


def test_each_flight_that_arrived_is_a_row(
    spark: SparkSession, samples: dict[str, pa.Table]
) -> None:
    flights = samples["flights"]
    found = rows(spark, samples)

    delays = flights["arr_delay"].drop_null()
    assert 0 < flights["arr_delay"].null_count < 200
    assert len(found) == len(delays) == flights.num_rows - flights["arr_delay"].null_count
    assert sorted(row["arr_delay"] for row in found.values()) == sorted(delays.to_pylist())
    assert all(row["late"] is (row["arr_delay"] > 15) for row in found.values())
    for column in ("temp", "seats"):
        known = sum(row[column] is not None for row in found.values())
        assert known > 0.75 * len(found), column
    assert any(row["seats"] is None for row in found.values())


def test_no_feature_follows_from_what_the_flight_did(
    spark: SparkSession, samples: dict[str, pa.Table]
) -> None:
    other = {**samples, "flights": scrambled(samples["flights"], OUTCOMES)}
    found = rows(spark, samples)

    assert features(rows(spark, other)) == features(found)
    # The check would see one that does.
    leaking = QUERY.replace("60 * f.hour + f.minute AS", "f.dep_delay AS")
    assert leaking != QUERY
    assert features(rows(spark, other, leaking)) != features(rows(spark, samples, leaking))
    # What the pipeline trains on is none of the labels, and all in the query.
    submitted = json.loads(GOLDEN.read_text())
    given = {*submitted["features"], submitted["key"], *submitted["keep"]}
    assert given <= set(next(iter(features(found).values())))


def test_the_weather_is_from_before(spark: SparkSession, samples: dict[str, pa.Table]) -> None:
    flights, weather = samples["flights"], samples["weather"]
    last = pc.max(flights["time_hour"])
    measured = tuple(n for n in weather.column_names if pa.types.is_floating(weather[n].type))
    later = pc.greater_equal(weather["time_hour"], last)
    assert pc.sum(pc.equal(flights["time_hour"], last)).as_py() > 0
    other = {**samples, "weather": scrambled(weather, measured, later.combine_chunks())}

    assert features(rows(spark, other)) == features(rows(spark, samples))
    same_hour = QUERY.replace(" - INTERVAL 1 HOUR", "")
    assert same_hour != QUERY
    assert features(rows(spark, other, same_hour)) != features(rows(spark, samples, same_hour))
