"""The pipelines on the cluster of docker-compose.yaml, triggered as a person would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import dataset
from tests.e2e.runs import Run, wait_until

from services.composed import Composed
from services.lifelines import lifelines, problems_of

pytestmark = pytest.mark.timeout(1500)

SECONDS = 1200

PIPELINES: dict[str, dict[str, Any]] = {
    "mnist_horovod": {"epochs": 6, "ranks": 2, "learning_rate": 0.03, "seed": 7},
    "flight_delays_xgboost": {"rounds": 60, "num_workers": 2, "max_depth": 5, "seed": 7},
}
"""Each DAG and the parameters that are changed."""

HEADLINES = {"mnist_horovod": ("accuracy", 0.9), "flight_delays_xgboost": ("roc_auc", 0.62)}
"""The metric that tells whether a model has learnt, and what it must reach."""


@pytest.fixture(scope="module", params=PIPELINES)
def run(request: pytest.FixtureRequest, composed: Composed) -> Run:
    """A run of each pipeline, which has ended well."""
    dag = request.param
    name, least = HEADLINES[dag]
    given = {**PIPELINES[dag], f"minimum_{name}": least}
    run = Run.trigger(composed.api, dag, **given)
    assert run.wait(SECONDS) == "success"
    return run


def test_the_parameters_are_followed(run: Run) -> None:
    trained = run.xcom("train")
    wanted = PIPELINES[run.dag_id]
    if "epochs" in wanted:
        assert trained["metrics"]["epochs"] == wanted["epochs"]
    else:
        assert trained["metrics"]["rounds"] == wanted["rounds"]


def test_the_model_is_good_registered_and_serves(run: Run, composed: Composed) -> None:
    name, least = HEADLINES[run.dag_id]
    evaluated, promoted, trained = (run.xcom(task) for task in ("evaluate", "promote", "train"))
    assert evaluated["metrics"][name]["value"] > least
    model = trained["model"]
    found = composed.mlflow(
        "model-versions/get", name=model["name"], version=str(model["version"])
    )["model_version"]
    assert found["status"] == "READY"
    assert {tag["key"]: tag["value"] for tag in found["tags"]}["trainyard.run_dir"]
    serves = composed.mlflow("registered-models/alias", name=model["name"], alias="champion")[
        "model_version"
    ]
    assert promoted["champion"]["version"] == serves["version"]


def test_predictions_are_all_there(run: Run) -> None:
    rows = run.xcom("predict")["rows"]
    assert rows["in"] == rows["out"] > 0


def test_one_claim_did_the_work_of_each_attempt(
    run: Run, composed: Composed, tmp_path: Path
) -> None:
    tasks = run.tasks()
    for task in ("prepare", "train", "evaluate", "predict"):
        copied = composed.copy_out(run.xcom(task)["run_dir"], tmp_path / task)
        lines = lifelines(copied)
        assert problems_of(lines) == []
        assert len(lines) == tasks[task]["try_number"] == 1


def test_nothing_is_held(run: Run, composed: Composed) -> None:
    wait_until(lambda: composed.leavings() == {}, 30)


def test_photographs_are_labelled(composed: Composed, tmp_path: Path) -> None:
    run = Run.trigger(composed.api, "image_labels", top_k=3)
    assert run.wait(SECONDS) == "success"
    labelled = run.xcom("label")
    assert labelled["rows"] == {"in": 2, "out": 2, "quarantined": 0}
    predictions = composed.copy_out(labelled["outputs"]["predictions"], tmp_path / "predictions")
    found = {
        Path(row["key"]).stem: row["labels"]
        for row in dataset.dataset(predictions).to_table().to_pylist()
    }
    assert found["china"][0] == "palace"
    assert found["flower"][0] == "daisy"
    assert {len(labels) for labels in found.values()} == {3}
    copied = composed.copy_out(labelled["run_dir"], tmp_path / "label")
    assert len(lifelines(copied)) == run.tasks()["label"]["try_number"] == 1
    wait_until(lambda: composed.leavings() == {}, 30)


def test_a_search_keeps_its_study_in_postgresql(composed: Composed) -> None:
    fixed = {"epochs": 2}
    run = Run.trigger(composed.api, "tune_mnist", trials=4, fixed=fixed, minimum_accuracy=0)
    assert run.wait(SECONDS) == "success"
    assert sum(run.xcom("tune")["trials"].values()) == 4
    count = "psql -h 127.0.0.1 -U studies -tAc 'SELECT count(*) FROM trials'"
    said = composed.exec("studies", "sh", "-c", f'PGPASSWORD="$POSTGRES_PASSWORD" {count}')
    assert int(said) >= 4


def test_the_history_server_knows_the_applications(run: Run, composed: Composed) -> None:
    def all_have_ended() -> bool:
        ended = [app["attempts"][0]["completed"] for app in composed.history()]
        return len(ended) >= 4 and all(ended)

    wait_until(all_have_ended, 60)  # the server looks every ten seconds


def test_the_rest_server_asks_for_a_token_and_is_reached_by_airflow_alone(
    composed: Composed,
) -> None:
    ask = (
        "import urllib.request, urllib.error\n"
        "try:\n"
        "    urllib.request.urlopen('http://spark-master:6066/v1/submissions/status/x', None, 5)\n"
        "except urllib.error.HTTPError as error:\n"
        "    print(error.code)\n"
        "except OSError as error:\n"
        "    print(type(error.__context__ or error).__name__)\n"
    )
    assert composed.exec("airflow-scheduler", "python", "-c", ask).strip() == "403"
    assert composed.exec("spark-worker-1", "python", "-c", ask).strip() == "ConnectionRefusedError"


def test_no_secret_is_in_a_command_line(composed: Composed) -> None:
    secret = ("PASSWORD", "KEY", "SECRET", "TOKEN")
    hidden = [value for name, value in composed.settings.items() if name.endswith(secret)]
    assert len(hidden) == 10
    list_all = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done 2>/dev/null"
    for service in composed.containers.services():
        if composed.containers.health(service) == "healthy":
            shown = composed.exec(service, "sh", "-c", list_all)
            assert "init" in shown
            assert not [value for value in hidden if value in shown]


def test_every_process_of_ours_is_without_rights(composed: Composed) -> None:
    for service in composed.containers.services():
        if service.startswith(("airflow", "spark", "mlflow")) and service != "airflow-init":
            assert composed.exec(service, "id", "-u").strip() == "10001"
