"""A dataset is made once for the same rows and settings, and never trusted unseen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_runs import notes, run_in
from prepared_tables import prepared, rows_of, table
from tiny_models import store_linear

import train_horovod
from evaluate import evaluate_model
from trainyard import store
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.horovod.loader import Loader, Plan
from trainyard.specs import Evaluate, TrainHorovod

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pq.write_table(table(), tmp_path / "source.parquet")
    return tmp_path / "source.parquet"


class TestReuse:
    def test_the_same_rows_and_settings(
        self, spark: SparkSession, tmp_path: Path, source: Path
    ) -> None:
        index = {"datasets": str(tmp_path / "datasets"), "scaling": "minmax"}
        first, a = prepared(spark, tmp_path / "1", source, **index)
        moved = shutil.move(source, tmp_path / "moved.parquet")
        again, b = prepared(spark, tmp_path / "2", moved, **index)
        assert again == first
        assert (b["rows"], b["fingerprints"]) == (a["rows"], a["fingerprints"])
        assert not (tmp_path / "2" / "run" / "data").exists()
        assert any(f"{first.directory} is used again" in n for n in notes(tmp_path / "2" / "run"))
        other, _ = prepared(spark, tmp_path / "3", moved, **index, split_seed=1)
        assert other.directory != first.directory

    @pytest.mark.parametrize("damage", ["file", "preprocessing", "manifest", "index"])
    def test_what_is_no_longer_whole_is_made_anew(
        self, spark: SparkSession, tmp_path: Path, source: Path, damage: str
    ) -> None:
        index = {"datasets": str(tmp_path / "datasets"), "scaling": "minmax"}
        first, _ = prepared(spark, tmp_path / "1", source, **index)
        if damage == "file":
            Path(first.paths("test")[0]).unlink()
        elif damage == "preprocessing":
            next(Path(first.directory).glob("preprocessing/metadata/part-*")).write_text("{}")
        elif damage == "manifest":
            (Path(first.directory) / "dataset.json").unlink()
        else:
            next((tmp_path / "datasets").glob("*.json")).write_text("{")
        again, _ = prepared(spark, tmp_path / "2", source, **index)
        assert again.directory == str(tmp_path / "2" / "run" / "data")
        assert rows_of(again, "train").num_rows == first.rows("train")
        third, _ = prepared(spark, tmp_path / "3", source, **index)
        assert third.directory == again.directory

    def test_it_can_be_switched_off(
        self, spark: SparkSession, tmp_path: Path, source: Path
    ) -> None:
        index = {"datasets": str(tmp_path / "datasets")}
        prepared(spark, tmp_path / "1", source, **index)
        again, _ = prepared(spark, tmp_path / "2", source, **index, reuse=False)
        assert again.directory == str(tmp_path / "2" / "run" / "data")


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepared(spark, tmp_path_factory.mktemp("made"), table())[0]


class TestDamagedFiles:
    @pytest.fixture
    def dataset(self, made: Dataset, tmp_path: Path) -> Dataset:
        """A copy to damage."""
        store.copy(made.directory, str(tmp_path / "copy"))
        return Dataset.read(str(tmp_path / "copy"))

    def test_training_refuses_another_size(self, dataset: Dataset, tmp_path: Path) -> None:
        path = Path(dataset.paths("train")[0])
        path.write_bytes(path.read_bytes() + b"!")
        spec = TrainHorovod(
            run_dir=str(tmp_path), dataset=dataset.directory, model_name="m", input_shape=(2,)
        )
        with pytest.raises(JobError) as caught:
            train_horovod.check(spec, dataset)
        size, rows = path.stat().st_size, dataset.rows("train")
        assert f"{str(path)!r} of the dataset has {size} bytes, where dataset.json says" in str(
            caught.value
        )
        assert f"{size - 1} bytes and {rows} rows" in str(caught.value)

    def test_judging_refuses_a_missing_file(
        self, spark: SparkSession, dataset: Dataset, tmp_path: Path
    ) -> None:
        import torch

        model = store_linear(tmp_path / "model", dataset, torch.ones(3, 2))
        Path(dataset.paths("test")[0]).unlink()
        spec = Evaluate(run_dir=str(tmp_path / "run"), dataset=dataset.directory, model=model)
        with pytest.raises(JobError, match=r"parquet' of the dataset is not there, where dataset"):
            evaluate_model(spark, spec, run_in(tmp_path / "run"))

    def test_a_flipped_bit_is_found_when_rows_are_read(self, dataset: Dataset) -> None:
        path = Path(dataset.paths("train")[0])
        data = bytearray(path.read_bytes())
        chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
        data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
        path.write_bytes(data)
        dataset.check_files()
        plan = Plan(rows=dataset.rows("train"), size=1, batch_size=16)
        with pytest.raises(JobError, match="does not match the dataset"):
            list(Loader(dataset, "train", plan, 0, streaming=True).in_order())


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode != 0,
    reason="this machine lets nobody mount a small tmpfs of his own",
)
def test_a_store_that_fills_up(tmp_path: Path) -> None:
    """The rows are 4.8 MB of random bits, and the store has 2 MB."""
    noise = np.random.default_rng(0).normal(size=(2000, 600))
    columns: dict[str, Any] = {"x": pa.array(list(noise)), "y": np.arange(2000) % 2}
    pq.write_table(pa.table({"id": np.arange(2000), **columns}), tmp_path / "source.parquet")
    mount = tmp_path / "store"
    mount.mkdir()
    argv = [
        f"--run-dir={mount}/run",
        f"--source={tmp_path}/source.parquet",
        "--features=x",
        "--label=y",
        "--key=id",
    ]
    program = Path(__file__).parents[2] / "jobs" / "prepare.py"
    submit = Path(sys.executable).with_name("spark-submit")
    script = (
        f"mount -t tmpfs -o size=2m tmpfs {mount} && {submit} --master 'local[2]' {program} "
        f"{' '.join(argv)}; code=$?; find {mount}/run -name '*.json'; "
        f"grep Errno {mount}/run/failure.json; exit $code"
    )
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (last,) = [line for line in done.stdout.splitlines() if line.startswith("cause: ")]
    assert last.startswith(f"cause: '{mount}/run/data/train/")
    assert "cannot be written: [Errno 28] No space left on device" in last
    assert "fix: Free some space, make it writable" in last
    assert "data/dataset.json" not in done.stdout
    assert "result.json" not in done.stdout
    # What was written of the dataset is gone, so that there is room to say why.
    assert "failure.json" in done.stdout
