"""XGBoost's workers in real Spark tasks, and its models in every other job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xgboost as xgb
from boosted import KINDS, NATIVE, native, real_dataset, real_rows, spec_of, trees
from job_runs import notes, run_in
from made_datasets import write_dataset
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error

from train_xgboost import launch_in
from trainyard.barrier.engine import LaunchSettings
from trainyard.barrier.failures import LostRankError
from trainyard.barrier.launch import BarrierLauncher, run_again
from trainyard.dataset import Dataset
from trainyard.errors import JobError, SettingError
from trainyard.xgboost.booster import from_bytes
from trainyard.xgboost.engine import CollectiveError, XGBoostEngine, explained
from trainyard.xgboost.history import TrainResult
from trainyard.xgboost.train import train

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def launched(
    spark: SparkSession, run_dir: Path, dataset: Dataset, **settings: Any
) -> tuple[xgb.Booster, TrainResult]:
    run_dir.mkdir(exist_ok=True)
    spec = spec_of(run_dir, dataset, **{"num_workers": 2, **settings})
    result = launch_in(spark.sparkContext, spec, dataset, run_in(run_dir))
    assert result.booster is not None
    return from_bytes(result.booster), result


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return real_dataset(tmp_path_factory.mktemp("binary"), "binary")


MEASURES: dict[str, tuple[str, Callable[..., float]]] = {
    "binary": ("logloss", log_loss),
    "multiclass": ("mlogloss", log_loss),
    "regression": ("rmse", root_mean_squared_error),
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_workers_learn_what_native_xgboost_does(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    booster, result = launched(
        spark, tmp_path / "run", real_dataset(tmp_path / "data", kind), num_workers=None
    )
    assert result.workers == 2
    rows, (metric, measure) = real_rows(kind), MEASURES[kind]
    # What a round says is of the rows of both workers.
    for split, prefix in (("train", ""), ("validation", "validation_")):
        features, labels = rows[split]
        own = measure(labels, booster.inplace_predict(features))
        assert result.history[-1].figures[prefix + metric] == pytest.approx(own, rel=1e-4)
    theirs, _ = native(rows, NATIVE[kind])
    # So few values are sketched exactly: both have the same bins, and the same trees.
    features, _ = rows["test"]
    ours = booster.inplace_predict(features)
    assert ours == pytest.approx(theirs.inplace_predict(features), rel=1e-4)


def test_early_stopping_goes_by_the_rows_of_all_workers(
    spark: SparkSession, binary: Dataset, tmp_path: Path
) -> None:
    booster, result = launched(
        spark, tmp_path, binary, metrics="logloss,auc", early_stopping_rounds=3, rounds=60
    )
    features, labels = real_rows("binary")["validation"]
    areas = [
        roc_auc_score(
            labels, booster.inplace_predict(features, iteration_range=(0, n), predict_type="margin")
        )
        for n in range(1, result.best.number + 1)
    ]
    told = [done.figures["validation_auc"] for done in result.history]
    assert told[: result.best.number] == pytest.approx(areas, abs=1e-6)
    assert result.best.number == int(np.argmax(told)) + 1 < len(told) < 60
    assert booster.num_boosted_rounds() == result.best.number


def test_base_margins_and_weights_of_several_workers(spark: SparkSession, tmp_path: Path) -> None:
    rows, rng = real_rows("binary"), np.random.default_rng(0)
    margins = {s: rng.normal(size=(len(r[1]), 1)) for s, r in rows.items()}
    weights = {s: rng.uniform(0.1, 2, len(r[1])) for s, r in rows.items()}
    dataset = real_dataset(
        tmp_path / "data",
        "binary",
        margins={s: m.tolist() for s, m in margins.items()},
        weights={s: w.tolist() for s, w in weights.items()},
    )
    booster, result = launched(spark, tmp_path / "run", dataset)
    features, labels = rows["validation"]
    scores = booster.inplace_predict(features, base_margin=margins["validation"])
    loss = log_loss(labels, scores, sample_weight=weights["validation"])
    assert result.best.figures["validation_logloss"] == pytest.approx(loss, rel=1e-4)


def test_one_class_in_one_partition_trains(spark: SparkSession, tmp_path: Path) -> None:
    features, labels = real_rows("binary")["train"]
    order = np.argsort(labels, kind="stable")[: 2 * int((labels == 0).sum())]
    splits = {"train": (features[order], labels[order])}
    dataset = write_dataset(tmp_path / "data", splits, classes=2, row_group_rows=30)
    half = len(order) // 2
    assert set(labels[order[:half]]) == {0}
    assert set(labels[order[half:]]) == {1}
    booster, _ = launched(spark, tmp_path / "run", dataset)
    assert roc_auc_score(*scored(booster, features, labels)) > 0.99


def scored(booster: xgb.Booster, features: Any, labels: Any) -> tuple[Any, Any]:
    return labels, booster.inplace_predict(features)


def test_a_worker_without_rows_trains_along(
    spark: SparkSession, binary: Dataset, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, binary, num_workers=2)

    def fn() -> TrainResult:
        from unittest import mock

        def bounds(rows: int, rank: int, size: int) -> tuple[int, int]:
            return (0, rows) if rank == 0 else (rows, rows)

        with mock.patch("trainyard.xgboost.rows.bounds", bounds):
            return train(spec, binary, claim=1)

    first, second = launcher_of(spark, tmp_path).run(fn, 2)
    assert second.history == first.history
    assert first.booster is not None
    assert trees(from_bytes(first.booster)) == trees(
        native(real_rows("binary"), NATIVE["binary"])[0]
    )


def launcher_of(spark: SparkSession, run_dir: Path, stall_timeout: int = 60) -> BarrierLauncher:
    settings = LaunchSettings(
        run_dir=str(run_dir), claim=1, start_timeout=60, stall_timeout=stall_timeout
    )
    engine = XGBoostEngine(start_timeout=60, stall_timeout=stall_timeout)
    return BarrierLauncher(spark.sparkContext, settings, engine)


class TestFaults:
    def test_a_killed_worker_is_started_again_and_it_ends_the_same(
        self, spark: SparkSession, binary: Dataset, tmp_path: Path
    ) -> None:
        settings = {"rounds": 14, "checkpoint_every": 4, "booster_params": {"subsample": 0.7}}
        whole = launched(spark, tmp_path / "whole", binary, **settings)[1]
        spec = spec_of(tmp_path / "run", binary, num_workers=2, **settings)
        (tmp_path / "run").mkdir()

        def fn(launch: int) -> Callable[[], TrainResult]:
            def body() -> TrainResult:
                from trainyard.xgboost import train as module

                if launch == 1 and xgb.collective.get_rank() == 1:
                    kept = module._Training.after_round

                    def die(self: Any, trees: Any, log: Any) -> bool:
                        if len(self.history) == 9:
                            os.kill(os.getpid(), signal.SIGKILL)
                        return kept(self, trees, log)

                    module._Training.after_round = die  # type: ignore[method-assign]
                return module.train(spec, binary, claim=1, launch=launch)

            return body

        told: list[str] = []
        first = run_again(launcher_of(spark, tmp_path / "run"), fn, 2, 1, told.append)[0]
        assert "rank 1 (process" in told[0]
        assert "was killed" in told[0]
        assert first.resumed == 8
        assert first.history == whole.history
        assert first.booster is not None
        assert whole.booster is not None
        resumed, undisturbed = from_bytes(first.booster), from_bytes(whole.booster)
        assert resumed.get_dump() == undisturbed.get_dump()
        features = real_rows("binary")["test"][0]
        assert np.array_equal(
            resumed.inplace_predict(features), undisturbed.inplace_predict(features)
        )

    def test_a_worker_that_does_not_answer_is_named(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        def fn() -> None:
            from xgboost import collective

            if collective.get_rank() == 1:
                time.sleep(60)
            collective.allreduce(np.ones(3), collective.Op.SUM)

        with pytest.raises(LostRankError, match="rank 1 of 2 did not answer for stall_timeout = 5"):
            launcher_of(spark, tmp_path, stall_timeout=5).run(fn, 2)

    def test_a_workers_own_error_is_the_jobs(self, spark: SparkSession, tmp_path: Path) -> None:
        features, labels = real_rows("binary")["train"]
        same = write_dataset(tmp_path / "d", {"train": (features, labels * 0)}, classes=2)
        with pytest.raises(JobError, match="training rows have the label 0: there is nothing"):
            launched(spark, tmp_path / "run", same)

    def test_more_workers_than_slots(
        self, spark: SparkSession, binary: Dataset, tmp_path: Path
    ) -> None:
        with pytest.raises(SettingError, match="has 2 slots") as caught:
            launched(spark, tmp_path, binary, num_workers=3)
        assert caught.value.name == "num_workers"
        assert caught.value.fix.startswith("Set num_workers to 2 or less")

    def test_a_tracker_that_cannot_be_reached(self) -> None:
        program = (
            "from trainyard.barrier.engine import assign\n"
            "from trainyard.xgboost.engine import XGBoostMember\n"
            "member = XGBoostMember(host='127.0.0.1', port=1, timeout=10)\n"
            "try:\n"
            "    with member.joined(assign(['h'])[0], '127.0.0.1'): pass\n"
            "except Exception as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
        assert "cannot reach XGBoost's tracker at 127.0.0.1:1: " in done.stdout
        assert "Connection refused" in done.stdout
        assert "spark.driver.host" in done.stdout

    def test_what_xgboosts_errors_mean(self) -> None:
        error = xgb.core.XGBoostError("a/nccl.cc:1: NCCL failure: unhandled system error")
        found = explained(error)
        assert isinstance(found, JobError)
        assert "spark.executorEnv.NCCL_SOCKET_IFNAME" in found.fix
        text = (
            "src/collective/result.cc:83: [a:1]: \n- [socket.h:79|0:0]: Poll timeout.\nStack trace:"
        )
        lost = explained(xgb.core.XGBoostError(text))
        assert isinstance(lost, CollectiveError)
        assert str(lost) == "Poll timeout"
        other = xgb.core.XGBoostError("objective.cc: Unknown objective")
        assert explained(other) is other


def test_fewer_rows_than_workers_are_noted(
    spark: SparkSession, binary: Dataset, tmp_path: Path
) -> None:
    rows = {"train": tuple(part[:1] for part in real_rows("binary")["train"])}
    dataset = write_dataset(tmp_path / "data", rows, classes=2)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="nothing to learn"):
        launched(spark, tmp_path, dataset)
    assert notes(tmp_path)[0] == "1 of 2 workers have no row of the 1"
