"""The DAG flight_delays_xgboost from end to end, on every twentieth flight."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.runs import Run, dag_ids, in_jobs_environment, wait_until

from services.api import Api

pytestmark = pytest.mark.timeout(600)

DAG = "flight_delays_xgboost"
SAMPLED = (
    "import sys, numpy as np, pyarrow.parquet as pq\n"
    "from trainyard.samples import SAMPLES\n"
    "flights = SAMPLES['flights']()\n"
    "pq.write_table(flights.take(np.arange(0, flights.num_rows, 20)), sys.argv[1])"
)
SCORED = (
    "import json, sys, pyarrow.dataset as ds\n"
    "rows = ds.dataset(sys.argv[1]).to_table().to_pylist()\n"
    "print(json.dumps(sorted(row['key'].split()[3] for row in rows)))"
)


def test_late_flights_are_learnt_judged_and_scored(api: Api, tmp_path: Path) -> None:
    flights = tmp_path / "flights.parquet"
    in_jobs_environment(SAMPLED, str(flights))
    wait_until(lambda: DAG in dag_ids(api), 60)

    tables = {"flights": str(flights), "weather": "sample:weather", "planes": "sample:planes"}
    run = Run.trigger(api, DAG, tables=tables, rounds=20, minimum_roc_auc=0.6)
    assert run.wait() == "success"

    prepared, trained, evaluated = (run.xcom(task) for task in ("prepare", "train", "evaluate"))
    promoted, predicted = run.xcom("promote"), run.xcom("predict")
    rows = prepared["rows"]
    assert prepared["tables"]["flights"] == 16_839
    # The others were cancelled or diverted.
    assert 16_000 < rows["in"] == rows["out"] < 16_839
    assert all(rows[split] > 1000 for split in ("train", "validation", "test", "holdout"))
    auc = evaluated["metrics"]["roc_auc"]
    # Chance is 0.5; the schedule, the carrier and the weather say more than that.
    assert 0.6 < auc["value"] < 0.8
    assert set(evaluated["slices"]["origin"]) == {"EWR", "JFK", "LGA"}
    assert {"UA", "B6", "DL"} <= set(evaluated["slices"]["carrier"])
    assert promoted["champion"]["uri"] == trained["outputs"]["model_uri"]
    assert predicted["rows"]["out"] == rows["holdout"]
    days = json.loads(in_jobs_environment(SCORED, predicted["outputs"]["predictions"]))
    assert len(days) == rows["holdout"]
    assert {day[:7] for day in days} <= {"2013-12", "2014-01"}
