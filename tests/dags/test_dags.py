"""The DAGs as Airflow sees them: which there are, and what each owes to whoever runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.utils.dag_cycle_tester import check_cycle

from trainyard_airflow.operators.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG

TASKS = {
    "mnist_horovod": ["doctor", "prepare", "train", "evaluate", "promote", "predict"],
    "flight_delays_xgboost": ["doctor", "prepare", "train", "evaluate", "promote", "predict"],
    "tune_mnist": ["doctor", "prepare", "tune", "train", "evaluate", "promote", "predict"],
    "image_labels": ["doctor", "label"],
    "estimator_tutorial": ["doctor", "tutorial"],
    "rollback_model": ["rollback"],
    "collect_garbage": ["collect"],
    "end_lost_drivers": ["end"],
}
"""Every DAG, with its tasks in the order in which they run."""


@pytest.fixture(params=list(TASKS))
def dag(request: pytest.FixtureRequest, dagbag: DagBag) -> DAG:
    found: DAG = dagbag.dags[request.param]
    return found


def test_every_dag_and_no_other_is_there(dagbag: DagBag) -> None:
    assert dagbag.dags, "a DAG that fails to import must not look like an empty folder"
    assert dagbag.import_errors == {}
    assert set(dagbag.dags) == set(TASKS)


def test_the_tasks_run_in_their_order(dag: DAG) -> None:
    check_cycle(dag)
    wanted = TASKS[dag.dag_id]
    assert set(dag.task_ids) == set(wanted)
    for task_id, upstream in zip(wanted[1:], wanted, strict=False):
        assert upstream in dag.get_task(task_id).upstream_task_ids


def test_a_dag_is_described(dag: DAG) -> None:
    assert dag.doc_md
    assert dag.doc_md.strip().startswith(f"# {dag.dag_id}")
    for task in dag.tasks:
        assert f"`{task.task_id}`" in dag.doc_md, "the manual names every task"
    assert dag.description
    assert dag.tags


ASKED_BY = {"image_labels": "images"}
"""The asset by whose updates a DAG is started."""


def test_a_dag_does_not_start_by_itself_or_catch_up(dag: DAG) -> None:
    assert dag.catchup is False
    if dag.dag_id in ("collect_garbage", "end_lost_drivers"):
        assert dag.is_paused_upon_creation, "what removes or ends waits until it is switched on"
        return
    assert (dag.max_active_runs or 0) >= 2, "two runs at once must both succeed"
    if dag.dag_id in ASKED_BY:
        condition: Any = dag.timetable.asset_condition
        assert [asset.name for asset in condition.objects] == [ASKED_BY[dag.dag_id]]
    else:
        assert not dag.timetable.can_be_scheduled


def test_a_task_has_an_owner_retries_and_an_end(dag: DAG) -> None:
    for task in dag.tasks:
        assert task.owner == "trainyard"
        assert (task.retries or 0) >= 1
        assert task.retry_delay.total_seconds() <= 60
        assert task.execution_timeout is not None


ASSETS = {
    "mnist_horovod": {"mnist_dataset", "mnist_model", "mnist_predictions"},
    "flight_delays_xgboost": {
        "flight_delays_dataset",
        "flight_delays_model",
        "flight_delays_predictions",
    },
    "tune_mnist": {"mnist_dataset", "mnist_model", "mnist_predictions"},
    "image_labels": {"image_labels"},
    "estimator_tutorial": set(),
    "rollback_model": {"served_model"},
    "collect_garbage": set(),
    "end_lost_drivers": set(),
}


def test_what_a_dag_makes_is_an_asset(dag: DAG) -> None:
    assert {asset.name for task in dag.tasks for asset in task.outlets} == ASSETS[dag.dag_id]


REQUIRED = {"rollback_model": {"who", "why"}}
"""Fields of a form that have no default: a run without them is refused."""


def test_every_field_of_the_form_has_a_valid_default_and_is_explained(dag: DAG) -> None:
    for name in dag.params:
        field = dag.params.get_param(name)
        # Airflow counts None as no value, though a field may allow it.
        if field.has_value or "null" in field.schema["type"]:
            field.resolve()
        else:
            assert name in REQUIRED[dag.dag_id], name
        assert field.description, name
        assert field.schema["section"], name
        assert field.schema["title"], name
        assert "type" in field.schema, name


def test_every_field_of_the_form_is_used(dag: DAG) -> None:
    templates = "".join(
        str(getattr(task, field)) for task in dag.tasks for field in task.template_fields
    )
    for name in dag.params:
        assert f"params.{name} " in templates, name


def test_a_job_reads_only_results_of_tasks_before_it(dag: DAG) -> None:
    for task in dag.tasks:
        if isinstance(task, SparkJobOperator):
            upstream = {t.task_id for t in task.get_flat_relatives(upstream=True)}
            read = {other for other in dag.task_ids if f"task_ids='{other}'" in str(task.settings)}
            assert read <= upstream, task.task_id
