"""Two runs of one DAG at the same time: both succeed, and neither sees anything of the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.runs import Run, dag_ids, wait_until

from services.api import Api
from services.installation import Installation

pytestmark = pytest.mark.timeout(600)

DAG = """
from airflow.sdk import DAG, chain

from trainyard.specs import Prepare, TrainHorovod
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import param, result, trigger_params

with DAG(dag_id="twins", schedule=None, params=trigger_params(Prepare, source="unset")):
    prepare = SparkJobOperator(
        task_id="prepare",
        job=Prepare(source=param("source"), features=("a", "b"), label="y", key="id"),
    )
    train = SparkJobOperator(
        task_id="train",
        job=TrainHorovod(
            dataset=result("prepare", "outputs", "dataset"),
            network="torch.nn:Linear",
            network_params={"in_features": 2, "out_features": 2},
            input_shape=(2,),
            epochs=1,
            batch_size=8,
            experiment="twins",
            model_name="twins",
        ),
    )
    chain(prepare, train)
"""


def source(directory: Path, name: str, rows: int) -> str:
    """A table whose keys tell whose rows they are."""
    lines = [f"{name}{row},{row % 7},{row % 5},{row % 2}" for row in range(rows)]
    path = directory / f"{name}.csv"
    path.write_text("\n".join(["id,a,b,y", *lines]) + "\n", encoding="utf-8")
    return str(path)


def test_two_runs_at_once_share_nothing(
    installation: Installation, api: Api, tmp_path: Path
) -> None:
    (installation.home / "dags" / "twins.py").write_text(DAG, encoding="utf-8")
    wait_until(lambda: "twins" in dag_ids(api), 60)
    rows = {"left": 90, "right": 150}
    runs = {
        name: Run.trigger(api, "twins", source=source(tmp_path, name, count))
        for name, count in rows.items()
    }

    assert {name: run.wait() for name, run in runs.items()} == dict.fromkeys(rows, "success")

    spans = [
        (run.tasks()["prepare"]["start_date"], run.tasks()["train"]["end_date"])
        for run in runs.values()
    ]
    assert max(start for start, _ in spans) < min(end for _, end in spans), "not at once"
    places, datasets, models, tracked = set(), set(), set(), set()
    for name, run in runs.items():
        prepared, trained = run.xcom("prepare"), run.xcom("train")
        assert prepared["rows"]["in"] == prepared["rows"]["out"] == rows[name]
        assert trained["rows"]["train"] == prepared["rows"]["train"]
        assert trained["fingerprints"]["dataset"] == prepared["fingerprints"]["dataset"]
        meta = json.loads(Path(trained["outputs"]["model"], "meta.json").read_text())
        assert meta["dataset_fingerprint"] == prepared["fingerprints"]["dataset"]
        for parquet in Path(prepared["outputs"]["dataset"]).glob("*/*.parquet"):
            other = "right" if name == "left" else "left"
            assert other.encode() not in parquet.read_bytes()
        places |= {prepared["run_dir"], trained["run_dir"]}
        datasets.add(prepared["fingerprints"]["dataset"])
        models.add(trained["model"]["version"])
        tracked.add(trained["model"]["mlflow_run_id"])
    assert len(places) == 4
    assert [len(found) for found in (datasets, models, tracked)] == [2, 2, 2]
