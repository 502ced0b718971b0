"""What a training leaves in MLflow: a real SQLite database in a directory of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainyard import registry, tracking
from trainyard.errors import JobError

if TYPE_CHECKING:
    from mlflow import MlflowClient

HISTORY = [
    {"loss": 0.5, "validation_loss": None},
    {"loss": 0.25, "validation_loss": 0.75},
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def client(database: str, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    monkeypatch.setenv(registry.TRACKING_URI, database)
    return registry.client()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "run" / "model"
    directory.mkdir(parents=True)
    (directory / "weights.safetensors").write_bytes(b"weights")
    (directory / "meta.json").write_text("{}")
    return directory


def track(model: Path, **changed: Any) -> tracking.Tracked:
    given: dict[str, Any] = {
        "experiment": "experiment",
        "model_name": "digits",
        "run_dir": str(model.parent),
        "model_directory": str(model),
        "model_sha256": "abc",
        "params": {"epochs": 2, "optimizer_params": {"momentum": 0.5}},
        "tags": {"trainyard.dataset": "fingerprint"},
        "history": HISTORY,
        **changed,
    }
    return tracking.track(**given)


def test_records_the_run_and_registers_the_model(client: MlflowClient, model: Path) -> None:
    tracked = track(model)
    run = client.get_run(tracked.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"epochs": "2", "optimizer_params": "{'momentum': 0.5}"}
    losses = client.get_metric_history(tracked.run_id, "loss")
    assert [(point.step, point.value) for point in losses] == [(1, 0.5), (2, 0.25)]
    judged = client.get_metric_history(tracked.run_id, "validation_loss")
    assert [(point.step, point.value) for point in judged] == [(2, 0.75)]

    version = client.get_model_version("digits", tracked.version)
    assert version.run_id == tracked.run_id
    assert version.tags["trainyard.dataset"] == "fingerprint"
    assert version.tags[tracking.RUN_DIR_TAG] == str(model.parent)
    assert registry.find_alias("digits", "challenger") == registry.resolve(tracked.uri)
    downloaded = Path(registry.download("digits", tracked.version))
    assert (downloaded / "weights.safetensors").read_bytes() == b"weights"


def test_a_retry_adds_nothing(client: MlflowClient, model: Path) -> None:
    first = track(model, model_name="retried")
    assert track(model, model_name="retried") == first
    assert len(client.search_model_versions("name = 'retried'")) == 1
    experiment = client.get_experiment_by_name("experiment")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.run_id for run in runs].count(first.run_id) == 1
    again = client.get_metric_history(first.run_id, "loss")
    assert len(again) == 2


def test_an_interrupted_attempt_is_replaced(
    client: MlflowClient, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(client), "log_artifacts", fail)
        with pytest.raises(KeyboardInterrupt):
            track(model, experiment="interrupted", model_name="interrupted")
    tracked = track(model, experiment="interrupted", model_name="interrupted")
    experiment = client.get_experiment_by_name("interrupted")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.run_id for run in runs] == [tracked.run_id]


def test_other_weights_are_another_version(client: MlflowClient, model: Path) -> None:
    first = track(model, model_name="twice")
    second = track(model, model_name="twice", model_sha256="def")
    assert (first.version, second.version) == ("1", "2")
    challenger = registry.find_alias("twice", "challenger")
    assert challenger is not None
    assert challenger.version == "2"


def test_artifacts_lie_beside_the_database(
    client: MlflowClient,
    model: Path,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    tracked = track(model, experiment="beside", model_name="beside")
    uri = client.get_run(tracked.run_id).info.artifact_uri
    beside = Path(database.removeprefix("sqlite:///")).parent / "artifacts"
    assert uri is not None
    assert uri.startswith(str(beside))
    assert list(elsewhere.iterdir()) == []


def test_more_metrics_than_a_request_takes(client: MlflowClient, model: Path) -> None:
    history = [{"loss": float(epoch)} for epoch in range(1500)]
    tracked = track(model, model_name="long", history=history)
    assert len(client.get_metric_history(tracked.run_id, "loss")) == 1500


def test_a_registry_that_is_not_named_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(registry.TRACKING_URI, raising=False)
    with pytest.raises(JobError, match="MLFLOW_TRACKING_URI is not set"):
        tracking.experiment_id("experiment")
