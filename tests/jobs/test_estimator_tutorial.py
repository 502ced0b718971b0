"""The tutorial's job: what it reports of an estimator's training."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from job_runs import run_in

import estimator_tutorial
from trainyard.rundir import read_events
from trainyard.specs import EstimatorTutorial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def test_digits_are_learnt_and_epochs_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def same_session(name: str, imports: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(estimator_tutorial, "spark_session", same_session)
    spec = EstimatorTutorial(run_dir=str(tmp_path), epochs=6, batch_size=16)
    result = estimator_tutorial.work(spec, run_in(tmp_path))
    assert result["metrics"]["accuracy"] > 0.6
    assert result["metrics"]["epochs"] == 6
    assert sum(result["rows"].values()) == 1797
    told = [event for event in read_events(str(tmp_path), {}) if event["kind"] == "progress"]
    assert [event["done"] for event in told] == [1, 2, 3, 4, 5, 6]
    assert Path(result["outputs"]["run"], "checkpoints").is_dir()
