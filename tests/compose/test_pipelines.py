"""The pipelines on the cluster of docker-compose.yaml, triggered as a person would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import dataset
from tests.e2e.runs import Run, wait_until

import compose
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
    assert int(studies(composed, "SELECT count(*) FROM trials")) >= 4
    assert studies(composed, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == "f"


def studies(composed: Composed, query: str) -> str:
    """What the studies' PostgreSQL answers to a job."""
    ask = f'PGPASSWORD="$STUDIES_DB_PASSWORD" psql -h studies -U studies -tAc "{query}"'
    return composed.exec("studies", "sh", "-c", ask).strip()


def test_the_history_server_knows_the_applications(run: Run, composed: Composed) -> None:
    def all_have_ended() -> bool:
        ended = [app["attempts"][0]["completed"] for app in composed.history()]
        return len(ended) >= 4 and all(ended)

    wait_until(all_have_ended, 60)  # the server looks every ten seconds


ASK = """
import sys, urllib.request, urllib.error
try:
    urllib.request.urlopen(f"http://{sys.argv[1]}:6066/v1/submissions/status/x", None, 5)
    print("answered")
except urllib.error.HTTPError as error:
    print(error.code)
except OSError as error:
    print("unreachable")
"""


def test_the_rest_server_asks_airflow_for_a_token(composed: Composed) -> None:
    assert composed.exec("airflow-scheduler", "python", "-c", ASK, "spark-rest").strip() == "403"


@pytest.mark.parametrize("service", ["spark-worker-1", "mlflow", "spark-history"])
def test_only_airflow_reaches_the_rest_server(composed: Composed, service: str) -> None:
    control = f'"{composed.containers.project}_control"'
    address = composed.inspect(
        "spark-master", f"(index .NetworkSettings.Networks {control}).IPAddress"
    )
    for host in ("spark-rest", "spark-master", address):
        assert composed.exec(service, "python", "-c", ASK, host).strip() == "unreachable", host


def test_no_secret_is_in_a_command_line(composed: Composed) -> None:
    secret = ("PASSWORD", "KEY", "SECRET", "TOKEN")
    hidden = [value for name, value in composed.settings.items() if name.endswith(secret)]
    assert len(hidden) == 10
    for service in composed.containers.services():
        if composed.containers.health(service) == "healthy":
            shown = processes(composed, service, "args")
            assert shown
            assert not [value for value in hidden if value in "\n".join(shown)]


def test_no_process_is_roots(composed: Composed) -> None:
    for service in composed.containers.services():
        if composed.containers.health(service) != "healthy":
            continue  # it has done its work
        # Docker prepares a health check as root, for milliseconds.
        wait_until(lambda: "0" not in processes(composed, service, "uid"), 5)  # noqa: B023
        if service not in ("postgres", "studies"):
            assert set(processes(composed, service, "uid")) == {"10001"}
        assert composed.inspect(service, ".HostConfig.CapDrop") == "[ALL]"


def processes(composed: Composed, service: str, column: str) -> list[str]:
    """What `ps` tells of each of a service's processes."""
    container = composed.containers.container(service)
    lines = compose.docker("top", container, "-eo", f"pid,{column}").splitlines()
    return [line.split(maxsplit=1)[1] for line in lines[1:]]
