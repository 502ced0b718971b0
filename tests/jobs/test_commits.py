"""Predictions that are interrupted: what is committed stays, and they end as undisturbed ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from job_runs import notes, run_in
from made_datasets import write_dataset
from tiny_models import store_linear

from predict import predict_rows
from trainyard import store
from trainyard.answers import Answers
from trainyard.commits import Commits
from trainyard.dataset import Dataset
from trainyard.errors import TransientError
from trainyard.models import ModelIdentity
from trainyard.predictions import Part, Target, keep_only, settled
from trainyard.specs import Predict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WEIGHT = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
ROWS = 90
ALL = {"in": ROWS, "out": ROWS, "quarantined": 0}


def features(marked: int = ROWS - 1) -> np.ndarray[Any, Any]:
    """Random rows; at the marked one a `Fragile` network dies."""
    found = np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32)
    found[marked, 0] = 101.0
    return found


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predict._PARTS_A_SLOT", 4)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Nine row groups."""
    split = (features(), np.arange(ROWS) % 3)
    directory = tmp_path_factory.mktemp("data")
    return write_dataset(directory, {"test": split}, classes=3, row_group_rows=10)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """The same rows as a table of two partitions."""
    return write_table(spark, tmp_path / "table", features())


def write_table(spark: SparkSession, directory: Path, rows: np.ndarray[Any, Any]) -> str:
    a, b = rows.astype(float).T
    frame = spark.createDataFrame(pa.table({"id": np.arange(ROWS), "a": a, "b": b}))
    frame.repartition(4).write.mode("overwrite").parquet(str(directory))
    return str(directory)


def model_in(
    directory: Path, dataset: Dataset, run_dir: Path, parts: int, *, weight: Any = WEIGHT
) -> str:
    params = {"width": 2, "classes": 3, "run_dir": str(run_dir), "parts": parts}
    named = {"features": ("a", "b"), "key": "id"} if directory.name == "of-table" else {}
    network = {"network": "tiny_models:Fragile", "network_params": params}
    return store_linear(directory, dataset, weight, **network, **named)


def predicted(
    spark: SparkSession, run_dir: Path, source: str, model: str, claim: int = 1
) -> dict[str, Any]:
    spec = Predict(run_dir=str(run_dir), source=source, model=model, batch_size=4)
    return predict_rows(spark, spec, run_in(run_dir, claim))


def rows_in(run_dir: Path) -> list[dict[str, Any]]:
    """The predictions by key, without what differs between any two runs."""
    table = pq.read_table(run_dir / "predictions").drop_columns(["scored_at"])
    return sorted(table.to_pylist(), key=lambda row: int(row["key"]))


def entries(run_dir: Path) -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in run_dir.glob("commits/*/0*.json")}


def interrupted(spark: SparkSession, run_dir: Path, source: str, model: str) -> set[str]:
    """Run until the worker is killed; return the files that are committed."""
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        predicted(spark, run_dir, source, model)
    return {entry["path"] for entry in entries(run_dir).values()}


def files_in(run_dir: Path) -> dict[str, int]:
    """Each file of predictions and when it was written."""
    return {path.name: path.stat().st_mtime_ns for path in run_dir.glob("predictions/*.parquet")}


def test_a_rerun_skips_what_is_committed_and_ends_the_same(
    spark: SparkSession, dataset: Dataset, tmp_path: Path
) -> None:
    whole, run_dir = tmp_path / "whole", tmp_path / "run"
    plain = model_in(tmp_path / "plain", dataset, whole, 0)
    assert predicted(spark, whole, dataset.directory, plain)["rows"] == ALL
    assert len(entries(whole)) == 8

    model = model_in(tmp_path / "model", dataset, run_dir, 3)
    kept = interrupted(spark, run_dir, dataset.directory, model)
    assert 3 <= len(kept) < 8
    before = files_in(run_dir)
    result = predicted(spark, run_dir, dataset.directory, model, claim=2)

    assert result["rows"] == ALL
    assert rows_in(run_dir) == rows_in(whole)
    after = files_in(run_dir)
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert all(name.startswith("c0002-") for name in after.keys() - kept)
    assert len(after) == 8
    assert len(set(pq.read_table(run_dir / "predictions")["scored_at"].to_pylist())) == 1
    assert any("rows were scored by an earlier attempt" in note for note in notes(run_dir))


def test_a_late_commit_whose_file_is_removed_does_not_count(tmp_path: Path) -> None:
    """The next driver removes the file of a lost driver's task, which may write on and commit."""
    identity = ModelIdentity(uri="m")
    answers = Answers(identity=identity, scored_at=datetime.now(UTC))
    target = Target(run_dir=str(tmp_path), prefix="c0002", answers=answers)
    commits = Commits.open(str(tmp_path), {}, {}, print)

    def part(name: str) -> Part:
        store.write_bytes(f"{target.predictions}/{name}", b"rows")
        return Part(path=name, bytes=4, rows=1, content=0, faults="", unseen=0)

    late, mine, other = map(part, ("c0001-0.parquet", "c0002-0.parquet", "c0002-9.parquet"))
    keep_only(target, [mine, other])
    assert settled(commits, 0, late, target) == late
    assert settled(commits, 0, mine, target) == mine
    assert settled(commits, 0, other, target) == mine
    assert [path.name for path in (tmp_path / "predictions").iterdir()] == [mine.path]
    assert entries(tmp_path)["00000.json"]["path"] == mine.path


def test_a_table_is_committed_by_partition(
    spark: SparkSession, dataset: Dataset, tmp_path: Path, table: str
) -> None:
    run_dir = tmp_path / "run"
    model = model_in(tmp_path / "of-table", dataset, run_dir, 1)
    (kept,) = interrupted(spark, run_dir, table, model)
    predicted(spark, run_dir, table, model, claim=2)
    wanted = (features() @ WEIGHT.numpy().T).argmax(1)
    assert [row["prediction"] for row in rows_in(run_dir)] == wanted.tolist()
    assert kept in files_in(run_dir)
    assert len(files_in(run_dir)) == 2


def test_rows_that_changed_are_scored_again(
    spark: SparkSession, dataset: Dataset, tmp_path: Path, table: str
) -> None:
    run_dir = tmp_path / "run"
    model = model_in(tmp_path / "of-table", dataset, run_dir, 1)
    (kept,) = interrupted(spark, run_dir, table, model)
    changed = -features()
    write_table(spark, Path(table), changed)
    predicted(spark, run_dir, table, model, claim=2)
    assert kept not in files_in(run_dir)
    wanted = (changed @ WEIGHT.numpy().T).argmax(1)
    assert [row["prediction"] for row in rows_in(run_dir)] == wanted.tolist()


@pytest.mark.parametrize("change", ["files", "model"])
def test_what_no_longer_holds_is_made_again(
    spark: SparkSession, dataset: Dataset, tmp_path: Path, change: str
) -> None:
    run_dir = tmp_path / "run"
    model = model_in(tmp_path / "model", dataset, run_dir, 3)
    kept = interrupted(spark, run_dir, dataset.directory, model)
    weight = WEIGHT
    if change == "model":
        weight = -WEIGHT
        model_in(tmp_path / "model", dataset, run_dir, 3, weight=weight)
    else:
        gone, *damaged = (run_dir / "predictions" / name for name in kept)
        gone.unlink()
        for file in damaged:
            file.write_bytes(file.read_bytes()[:-9])
    predicted(spark, run_dir, dataset.directory, model, claim=2)
    assert not kept & files_in(run_dir).keys()
    wanted = (features() @ weight.numpy().T).argmax(1)
    assert [row["prediction"] for row in rows_in(run_dir)] == wanted.tolist()
    anew = any("every part is made anew" in note for note in notes(run_dir))
    assert anew is (change == "model")


class TestCommits:
    def open(self, tmp_path: Path, work: str, told: list[str], **plan: Any) -> Commits:
        return Commits.open(str(tmp_path), {"work": work}, plan, told.append)

    def test_the_first_to_commit_a_part_has_made_it(self, tmp_path: Path) -> None:
        commits = self.open(tmp_path, "a", [])
        assert commits.commit(7, {"path": "first"}) == {"path": "first"}
        assert commits.commit(7, {"path": "second"}) == {"path": "first"}
        assert commits.entries() == {7: {"path": "first"}}
        commits.forget(7)
        assert commits.entries() == {}

    def test_the_first_plan_holds_until_the_work_changes(self, tmp_path: Path) -> None:
        told: list[str] = []
        self.open(tmp_path, "a", told, parts=3).commit(0, {})
        again = self.open(tmp_path, "a", told, parts=5)
        assert (again.plan, again.entries(), told) == ({"parts": 3}, {0: {}}, [])
        other = self.open(tmp_path, "b", told, parts=5)
        assert (other.plan, other.entries(), len(told)) == ({"parts": 5}, {}, 1)
        assert self.open(tmp_path, "a", told, parts=9).entries() == {}

    def test_a_full_store_is_named_and_may_be_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commits = self.open(tmp_path, "a", [])

        def full(uri: str, data: bytes) -> bool:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(store, "create_bytes", full)
        with pytest.raises(TransientError, match=r"00002\.json' cannot be written: .*No space"):
            commits.commit(2, {})
