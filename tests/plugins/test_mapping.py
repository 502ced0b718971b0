"""Dynamic mapping: one task of a DAG becomes a job for each of several settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization
from tests.plugins.conftest import Worker

from trainyard.specs import Prepare, TrainHorovod
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import param, result

MakeContext = Callable[..., Any]


@pytest.fixture
def mapped() -> Any:
    """A task that trains with several seeds and rates, in a DAG."""
    with DAG(dag_id="a_dag", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        task = SparkJobOperator.partial(
            task_id="train",
            job=TrainHorovod(
                dataset=result("prepare", "outputs", "dataset"),
                epochs=param("epochs"),
                model_name="digits",
            ),
        ).expand(overrides=[{"seed": 1}, {"seed": 2, "learning_rate": 0.1}])
    assert dag.task_dict["train"] is task
    return task


def test_a_dag_with_a_mapped_job_is_stored_as_any_other(mapped: Any) -> None:
    stored = json.dumps(DagSerialization.to_dict(mapped.dag))
    restored = DagSerialization.from_dict(json.loads(stored))
    assert restored.get_task("train").is_mapped
    assert '"seed"' in stored


def test_each_mapped_job_has_its_own_settings(mapped: Any) -> None:
    first, second = (
        mapped.unmap({"overrides": overrides}).settings
        for overrides in ({"seed": 1}, {"seed": 2, "learning_rate": 0.1})
    )
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["learning_rate"] == TrainHorovod(dataset="d", model_name="m").learning_rate
    assert second["learning_rate"] == 0.1
    for settings in (first, second):
        assert settings["epochs"] == param("epochs")
        assert settings["model_name"] == "digits"


def test_mapped_jobs_run_in_directories_of_their_own(worker: Worker, context: MakeContext) -> None:
    with DAG(dag_id="a_dag", schedule=None):
        task: Any = SparkJobOperator.partial(
            task_id="prepare", job=Prepare(source="s", features=("f",), label="l")
        ).expand(overrides=[{"source": "a"}, {"source": "b"}])
    made = [
        task.unmap({"overrides": {"source": source}}).execute(context(map_index=index))
        for index, source in enumerate("ab")
    ]
    assert [one["run_dir"][-13:] for one in made] == ["/prepare.0/g2", "/prepare.1/g2"]
    assert "--source=b" in (worker.home / "submit.argv").read_text().splitlines()


def test_an_override_of_no_setting_is_refused(worker: Worker, context: MakeContext) -> None:
    job = Prepare(source="s", features=("f",), label="l")
    operator = SparkJobOperator(task_id="prepare", job=job, overrides={"sorce": "b"})
    with pytest.raises(AirflowFailException, match="Did you mean 'source'"):
        operator.execute(context())
