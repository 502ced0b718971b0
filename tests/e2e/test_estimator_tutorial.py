"""The DAG estimator_tutorial in a real Airflow."""

from __future__ import annotations

import pytest
from tests.e2e.runs import Run, dag_ids, wait_until

from services.api import Api

pytestmark = pytest.mark.timeout(600)


def test_digits_are_learnt(api: Api) -> None:
    wait_until(lambda: "estimator_tutorial" in dag_ids(api), 60)
    run = Run.trigger(api, "estimator_tutorial", epochs=10)
    assert run.wait() == "success"
    told = run.xcom("tutorial")
    print(told)
    assert told["metrics"]["accuracy"] > 0.8
    log = run.log("tutorial")
    print(log[-3000:])
    assert "epoch 10" in log
