"""Sources are read by name, whatever the order, and what cannot be read is said clearly."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainyard.columns import column
from trainyard.errors import JobError
from trainyard.samples import SAMPLES
from trainyard.sources import Table, detect_format, open_table
from trainyard.sparkerrors import unwrapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def collect(table: Table) -> list[tuple[object, ...]]:
    with unwrapped():
        return sorted(tuple(row) for row in table.frame.collect())


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("sample:mnist", "sample"),
        ("/data/x.parquet", "parquet"),
        ("s3://bucket/x.csv.gz", "csv"),
        ("/data/*.jsonl", "json"),
        ("x.ndjson.zst", "json"),
    ],
)
def test_a_name_tells_the_format(name: str, form: str) -> None:
    assert detect_format(name) == form


class TestDirectories:
    def test_its_files_tell_the_format(self, tmp_path: Path) -> None:
        for name in ("_SUCCESS", ".x.crc", "part-1.csv", "part-2.csv.gz"):
            (tmp_path / name).touch()
        assert detect_format(str(tmp_path)) == "csv"

    def test_several_formats_are_refused(self, tmp_path: Path) -> None:
        for name in ("a.csv", "b.parquet"):
            (tmp_path / name).touch()
        with pytest.raises(JobError, match=r"several formats \(csv, parquet\)"):
            detect_format(str(tmp_path))

    def test_a_prepared_dataset_is_no_source(self, tmp_path: Path) -> None:
        (tmp_path / "dataset.json").touch()
        with pytest.raises(JobError, match="prepared dataset already"):
            detect_format(str(tmp_path))

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(JobError, match="no name tells its format"):
            detect_format(str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [
        ("mnist", 5000, {"id", "pixels", "digit"}),
        ("digits", 1797, {"id", "pixels", "digit"}),
        ("breast_cancer", 569, {"id", "mean_radius", "worst_fractal_dimension", "diagnosis"}),
    ],
)
def test_samples(name: str, rows: int, columns: set[str]) -> None:
    table = SAMPLES[name]()
    assert table.num_rows == rows
    assert columns <= set(table.column_names)
    assert len(set(table["id"].to_pylist())) == rows


def test_flights_weather_and_planes() -> None:
    flights, weather, planes = (SAMPLES[name]() for name in ("flights", "weather", "planes"))
    assert (flights.num_rows, weather.num_rows, planes.num_rows) == (336_776, 26_115, 3322)
    # What is missing is missing, and neither a text nor a NaN.
    assert (flights["arr_delay"].null_count, flights["tailnum"].null_count) == (9430, 2512)
    assert flights["time_hour"][0].as_py() == datetime(2013, 1, 1, 10, tzinfo=UTC)


def test_an_unknown_sample(spark: SparkSession) -> None:
    with pytest.raises(JobError, match="Did you mean 'mnist'"):
        open_table(spark, "sample:minst", "auto", ["pixels"])


class TestCsv:
    def test_columns_go_by_name(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        path.write_text('label,a,"b.c[d]`e"\n1,2,"x ""y"", z"\n', encoding="utf-8-sig")
        table = open_table(spark, str(path), "auto", ["b.c[d]`e", "label"])
        assert table.textual
        assert collect(table) == [('x "y", z', "1", None)]

    def test_a_file_with_another_header_is_refused(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        (tmp_path / "1.csv").write_text("a,b\n1,2\n")
        (tmp_path / "2.csv").write_text("b,a\n2,1\n")
        with pytest.raises(
            JobError,
            match=r"has the columns (a, b, but another file has b, a|b, a, .* a, b)\.",
        ):
            collect(open_table(spark, str(tmp_path), "auto", ["a", "b"]))

    def test_lines_of_another_length_are_marked(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "x.csv.gz"
        path.write_bytes(gzip.compress(b"a,b,c\n1,2,3\n4,5\n6,7,8,9\n"))
        table = open_table(spark, str(path), "auto", ["a"])
        assert collect(table) == [("1", None), ("4", "4,5"), ("6", "6,7,8,9")]

    def test_a_header_that_lacks_a_column(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        path.write_text("Label,a\n1,2\n")
        with pytest.raises(
            JobError, match=r"no column 'label'; it has 2. fix: Did you mean 'Label'"
        ):
            open_table(spark, str(path), "csv", ["a", "label"])


class TestJson:
    def test_a_line_that_is_no_json_is_marked(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "x.jsonl"
        path.write_text('{"b": 1, "a": [1.5]}\n{"a": [2.5], "b": 2}\n{"a": oops\n')
        table = open_table(spark, str(path), "auto", ["a", "b"])
        assert table.malformed is not None
        bad = table.frame.filter(column(table.malformed).isNotNull()).collect()
        assert [tuple(row) for row in bad] == [(None, None, '{"a": oops')]
        good = table.frame.filter(column(table.malformed).isNull()).collect()
        assert sorted(row["b"] for row in good) == [1, 2]


class TestErrors:
    @pytest.mark.parametrize("form", ["csv", "parquet", "json"])
    def test_nothing_there(self, spark: SparkSession, form: str) -> None:
        with pytest.raises(JobError, match=r"'/nothing/here': nothing is there"):
            open_table(spark, "/nothing/here", form, ["a"])

    def test_a_damaged_file_is_named(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "x.parquet"
        spark.range(5000).write.parquet(str(path))
        damaged = sorted(path.glob("part-*.parquet"))[-1]
        whole = damaged.read_bytes()
        # The footer, by which it is opened, stays.
        damaged.write_bytes(whole[:4] + bytes(len(whole) - 1204) + whole[-1200:])
        table = open_table(spark, str(path), "parquet", ["id"])
        with pytest.raises(JobError, match=f"cannot read the file .*{damaged.name}: it is damaged"):
            collect(table)

    def test_another_format(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        path.write_text("a,b\n1,2\n")
        with pytest.raises(JobError, match="cannot be read as parquet"):
            open_table(spark, str(path), "parquet", ["a"])


def write_idx(directory: Path, stem: str, rows: int, *, gz: bool = False) -> None:
    """A pair of files with images of 2 x 3 pixels: row i holds i, i + 1, ..., and is digit i."""
    directory.mkdir(exist_ok=True)
    pixels = bytes((i + j) % 256 for i in range(rows) for j in range(6))
    sizes = [n.to_bytes(4) for n in (2051, rows, 2, 3)]
    images = b"".join(sizes) + pixels
    labels = b"".join(n.to_bytes(4) for n in (2049, rows)) + bytes(i % 10 for i in range(rows))
    for kind, number, content in (("images", 3, images), ("labels", 1, labels)):
        path = directory / f"{stem}-{kind}-idx{number}-ubyte"
        if gz:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)


class TestIdx:
    @pytest.mark.parametrize("gz", [False, True])
    def test_both_sets(self, spark: SparkSession, tmp_path: Path, gz: bool) -> None:
        write_idx(tmp_path / "mnist", "train", 5007, gz=gz)
        write_idx(tmp_path / "mnist", "t10k", 11, gz=gz)
        table = open_table(
            spark, str(tmp_path / "mnist"), "auto", ["id", "pixels", "digit", "part"]
        )
        rows = {row["id"]: row for row in table.frame.collect()}
        assert len(rows) == 5018
        assert rows["train-5006"]["pixels"] == [float((5006 + j) % 256) for j in range(6)]
        assert (rows["train-5006"]["digit"], rows["train-5006"]["part"]) == (6, "train")
        assert (rows["t10k-10"]["digit"], rows["t10k-10"]["part"]) == (0, "test")

    def test_one_file_of_a_pair_names_its_set(self, spark: SparkSession, tmp_path: Path) -> None:
        write_idx(tmp_path, "train", 7)
        write_idx(tmp_path, "t10k", 3)
        source = str(tmp_path / "t10k-images-idx3-ubyte")
        assert open_table(spark, source, "auto", ["digit"]).frame.count() == 3

    def test_what_is_wrong_with_a_file(self, spark: SparkSession, tmp_path: Path) -> None:
        write_idx(tmp_path, "train", 7)
        images, labels = (tmp_path / f"train-{k}-ubyte" for k in ("images-idx3", "labels-idx1"))
        whole = images.read_bytes()
        images.write_bytes(whole[:-1])
        with pytest.raises(JobError, match="ends after 57 bytes, but its header promises more"):
            collect(open_table(spark, str(tmp_path), "auto", ["digit", "pixels"]))
        images.write_bytes(b"<html>" + whole)
        with pytest.raises(JobError, match=r"no IDX file of images: it begins with \d+, not 2051"):
            open_table(spark, str(tmp_path), "auto", ["digit"])
        images.write_bytes(whole)
        labels.write_bytes(labels.read_bytes().replace(b"\0\0\0\7", b"\0\0\0\6", 1))
        with pytest.raises(JobError, match=r"has 7 images, but .* has 6 labels"):
            open_table(spark, str(tmp_path), "auto", ["digit"])
        labels.unlink()
        with pytest.raises(JobError, match="'train' has no labels file"):
            open_table(spark, str(tmp_path), "auto", ["digit"])


class TestTable:
    def test_a_table_of_the_catalog(self, spark: SparkSession) -> None:
        spark.createDataFrame([(1, 2.5)], ["id", "a"]).createOrReplaceTempView("measured")
        assert collect(open_table(spark, "table:measured", "auto", ["a"])) == [(2.5,)]
        with pytest.raises(JobError, match=r"has no column 'A'; it has 2\. fix: Did you mean 'a'"):
            open_table(spark, "table:measured", "auto", ["A"])

    def test_no_such_table(self, spark: SparkSession) -> None:
        with pytest.raises(JobError, match=r"'table:sales\.nothing': Spark's catalog has no such"):
            open_table(spark, "table:sales.nothing", "auto", ["a"])
