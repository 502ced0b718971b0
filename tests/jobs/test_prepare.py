"""A dataset is complete, disjoint, and the same however its table lies."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prepared_tables import ROWS, keys_of, prepared, refusal, rows_of, table, written_in

from trainyard import rundir
from trainyard.dataset import Dataset
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
        before, _ = prepared(spark, tmp_path / "1", written_in(tmp_path / "1", table()))
        after, _ = prepared(spark, tmp_path / "2", written_in(tmp_path / "2", table(2 * ROWS)))
        for split in SPLITS:
            assert set(keys_of(before)[split]) <= set(keys_of(after)[split])

    def test_another_seed_is_another_split(self, spark: SparkSession, tmp_path: Path) -> None:
        first, a = prepared(spark, tmp_path / "1", written_in(tmp_path / "1", table()))
        second, b = prepared(
            spark, tmp_path / "2", written_in(tmp_path / "2", table()), split_seed=1
        )
        assert set(keys_of(first)["test"]) != set(keys_of(second)["test"])
        assert a["fingerprints"] != b["fingerprints"]

    def test_the_fingerprint_follows_the_content(self, spark: SparkSession, tmp_path: Path) -> None:
        changed = table(a=np.arange(ROWS) * 0.5 + (np.arange(ROWS) == 17) * 1e-3)
        prints = set()
        for name, source in (("1", table()), ("2", table()), ("3", changed)):
            _, result = prepared(spark, tmp_path / name, written_in(tmp_path / name, source))
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
