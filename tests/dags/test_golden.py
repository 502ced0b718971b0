"""What each task submits: rendered, built into an argv, parsed by the job, compared with a file.

`make golden` renews the files; they hold parsed settings, so that a change of a default shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.dags.conftest import RESULTS, ROOT, STORE, TaskInstance
from tests.dags.test_dags import TASKS

from trainyard.contract import is_template
from trainyard.errors import JobError, SettingError
from trainyard.specs import TrainHorovod
from trainyard_airflow.operators.promote import PromoteModelOperator
from trainyard_airflow.operators.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

GOLDEN = ROOT / "tests" / "golden"
REQUIRED = {"rollback_model": {"who": "Ada", "why": "it drifts"}}
RENEW = os.environ.get("RENEW_GOLDEN") == "1"


def rendered(
    dagbag: DagBag,
    dag_id: str,
    task_id: str,
    params: dict[str, Any],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """A task with its templates rendered, and the context that rendered them."""
    dag = dagbag.dags[dag_id]
    task = dag.get_task(task_id).prepare_for_execution()
    context: Any = {
        "ti": TaskInstance(dag_id, task_id),
        "params": {**dag.params.dump(), **REQUIRED.get(dag_id, {}), **params},
        "run_id": TaskInstance.run_id,
        "expanded_ti_count": None,
        "triggering_asset_events": {},
        **more,
    }
    if isinstance(task, PromoteModelOperator):
        task.evaluation = RESULTS["evaluate"]  # an XComArg, which asks Airflow's own API
    task.render_template_fields(context)
    return task, context


@pytest.mark.parametrize(
    ("dag_id", "task_id"), [(dag_id, task) for dag_id, tasks in TASKS.items() for task in tasks]
)
def test_a_task_renders_and_submits_what_it_did(
    dagbag: DagBag, monkeypatch: pytest.MonkeyPatch, dag_id: str, task_id: str
) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", STORE)
    task, context = rendered(dagbag, dag_id, task_id, {})
    for field in task.template_fields:
        assert not is_template(getattr(task, field)), field
    if isinstance(task, SparkJobOperator):
        job = task.rendered_job(context)
        parsed = type(job).parse(job.argv())
        assert parsed == job
        compare(Path(f"{dag_id}.{task_id}.json"), {"job": job.job, **parsed.to_mapping()})
    else:
        compare(
            Path(f"{dag_id}.{task_id}.json"),
            {field: getattr(task, field) for field in task.template_fields},
        )


def compare(name: Path, submitted: dict[str, Any]) -> None:
    text = json.dumps(submitted, indent=1) + "\n"
    path = GOLDEN / name
    if RENEW:
        path.write_text(text)
    assert path.read_text() == text, "if this is what you want: make golden"


def test_no_golden_file_is_left_over() -> None:
    wanted = {f"{dag_id}.{task}.json" for dag_id, tasks in TASKS.items() for task in tasks}
    assert {path.name for path in GOLDEN.iterdir()} == wanted


def test_what_the_form_was_given_reaches_the_job(
    dagbag: DagBag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", STORE)
    given = {
        "epochs": 3,
        "learning_rate": 1e-05,
        "optimizer": "Adam",
        "optimizer_params": {"betas": [0.8, 0.9], "amsgrad": True},
        "network_params": {"name": 'it\'s "quoted"', "depth": None},
    }
    task, context = rendered(dagbag, "mnist_horovod", "train", given)
    job = task.rendered_job(context)
    assert {name: getattr(job, name) for name in given} == given


def test_the_regression_of_flights_is_a_choice_in_the_form(
    dagbag: DagBag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", STORE)
    given = {"task": "regression"}
    jobs = {}
    for task_id in ("prepare", "train", "evaluate"):
        task, context = rendered(dagbag, "flight_delays_xgboost", task_id, given)
        jobs[task_id] = task.rendered_job(context)
    assert (jobs["prepare"].task, jobs["prepare"].label) == ("regression", "arr_delay")
    assert jobs["train"].model_name == "flight_delays_minutes"
    assert jobs["train"].metrics == ("rmse",)
    assert jobs["evaluate"].champion == "models:/flight_delays_minutes@champion"
    promote, _ = rendered(dagbag, "flight_delays_xgboost", "promote", given)
    assert promote.minimums == {"roc_auc": "None"}
    assert promote.margins == {"roc_auc": "None", "rmse": "0"}


def test_the_engine_that_was_searched_for_trains(
    dagbag: DagBag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", STORE)
    best = {"engine": "horovod", "settings": {"epochs": 7, "optimizer_params": {"momentum": 0.5}}}
    monkeypatch.setitem(RESULTS, "tune", {"best": best})
    task, context = rendered(dagbag, "tune_mnist", "train", {"ranks": 3, "seed": 4})
    job = task.rendered_job(context)
    assert isinstance(job, TrainHorovod)
    assert (job.epochs, job.optimizer_params) == (7, {"momentum": 0.5})
    assert (job.ranks, job.seed, job.dataset) == (3, 4, f"{STORE}/prepared/data")
    best["settings"] = {"epochs": 0}
    with pytest.raises(SettingError, match="'epochs' is 0"):
        task.rendered_job(context)
    best["engine"] = "other"
    with pytest.raises(JobError, match="'tune' searched for other"):
        task.rendered_job(context)


def test_a_space_in_the_form_is_checked_before_anything_is_submitted(
    dagbag: DagBag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", STORE)
    space = {"max_depth": {"low": 2, "high": 65}}
    given = {"engine": "xgboost", "space": space, "metric": "validation_merror", "trials": 3}
    task, context = rendered(dagbag, "tune_mnist", "tune", given)
    with pytest.raises(SettingError, match=r"65.*max_depth.*too large"):
        task.rendered_job(context)
    space["max_depth"]["high"] = 64
    task, context = rendered(dagbag, "tune_mnist", "tune", given)
    job = task.rendered_job(context)
    assert {name: getattr(job, name) for name in given} == given


def test_an_event_of_the_images_names_those_to_label(
    dagbag: DagBag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", STORE)
    extras: list[dict[str, Any]] = [{"source": "/old"}, {"source": "/new"}, {}]
    events = {"images": [SimpleNamespace(extra=extra) for extra in extras]}
    more = {"triggering_asset_events": events}
    task, context = rendered(dagbag, "image_labels", "label", {"source": "/form"}, more)
    assert task.rendered_job(context).source == "/new"
    task, context = rendered(dagbag, "image_labels", "label", {"source": "/form"})
    assert task.rendered_job(context).source == "/form"


def test_a_run_directory_is_safe_for_spark(dagbag: DagBag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", STORE)
    task, context = rendered(dagbag, "mnist_horovod", "train", {})
    run_dir = task.rendered_job(context).run_dir
    assert run_dir.startswith(f"{STORE}/mnist_horovod/manual__2026-11-30T02_00_00_00_00-")
    assert run_dir.endswith("/train/g2")
    assert not set(run_dir) & set(": *?[]{}")
