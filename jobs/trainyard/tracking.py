"""Records a training in MLflow: its run, its metrics by epoch, and the model version it made.

The tracking server is the one that MLFLOW_TRACKING_URI names. A job that is retried finds what an
earlier attempt recorded by its tags, and adds nothing twice.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard import registry, store
from trainyard.layout import MODEL

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

RUN_DIR_TAG = "trainyard.run_dir"
"""Tag of a run and of a model version: the run directory whose job made it."""

MODEL_TAG = "trainyard.model"
"""Tag of the same: the digest of the model's weights."""

PARENT_TAG = "mlflow.parentRunId"
"""MLflow's own tag of a run that is shown below another one: that one's id."""

_MOST_METRICS = 1000  # in one request to MLflow


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """What MLflow knows the training by.

    Attributes:
        name: the registered model's name.
        version: the version's number.
        run_id: the MLflow run.
    """

    name: str
    version: str
    run_id: str

    @property
    def uri(self) -> str:
        """The version's URI."""
        return f"models:/{self.name}/{self.version}"


def experiment_id(name: str) -> str:
    """The experiment of a name, made when it is not there.

    Called before the training too, so that a registry that does not answer costs no training.

    Raises:
        JobError: the registry is not named or does not answer.
    """
    client = registry.client()
    with registry.answering():
        if client.get_experiment_by_name(name) is None:
            with _made_meanwhile():
                client.create_experiment(name, artifact_location=_artifacts())
        known = client.get_experiment_by_name(name)
    assert known is not None  # noqa: S101 - it was made if it was not there
    return str(known.experiment_id)


def _artifacts() -> str | None:
    """Where a new experiment keeps files; None leaves it to the tracking server."""
    uri = os.environ[registry.TRACKING_URI]
    if not uri.startswith("sqlite:///"):
        return None
    # Without a server MLflow would choose the directory that the job happens to be started in.
    database = Path(uri.removeprefix("sqlite:///").split("?")[0]).resolve()
    return str(database.with_name("artifacts"))


def track(
    *,
    experiment: str,
    model_name: str,
    run_dir: str,
    model_directory: str,
    model_sha256: str,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    history: Sequence[Mapping[str, float | None]],
    files: Mapping[str, bytes] | None = None,
    complete: Callable[[Path], None] | None = None,
) -> Tracked:
    """Log a training and register its model, once for each run directory and weights.

    The version's files are a copy among the run's artifacts: a tracking server takes no others.

    Args:
        experiment: name of the experiment; it is made when it is not there.
        model_name: name of the registered model; likewise.
        run_dir: the job's run directory.
        model_directory: directory of the stored model.
        model_sha256: digest of its weights.
        params: the job's settings.
        tags: what else to record with the run and the version.
        history: metrics of each epoch or round, the first one's first.
        files: what else to keep with the run, by path.
        complete: adds to the copy of the model's directory what MLflow itself wants in it.

    Raises:
        JobError: the registry does not answer.
    """
    client = registry.client()
    identity = {RUN_DIR_TAG: run_dir, MODEL_TAG: model_sha256}
    tags = {**tags, **identity}
    experiment = experiment_id(experiment)
    with registry.answering():
        run = _find_run(client, experiment, identity)
        if run is None:
            run = start_run(client, experiment, params, tags, history)
            log_files(client, run, files or {})
            _log_model(client, run, model_directory, complete)
            client.set_terminated(run.info.run_id)
        version = _find_version(client, model_name, identity)
        if version is None:
            version = _register(client, model_name, run, tags)
    made = registry.set_alias(model_name, registry.CHALLENGER, str(version.version))
    return Tracked(name=made.name, version=made.version, run_id=run.info.run_id)


def _find_run(client: MlflowClient, experiment: str, identity: Mapping[str, str]) -> Run | None:
    """The complete run of a training; what an interrupted attempt left of it is removed."""
    found = client.search_runs([experiment], tagged(identity))
    for run in found:
        if run.info.status != "FINISHED":
            client.delete_run(run.info.run_id)
    return next((run for run in found if run.info.status == "FINISHED"), None)


def start_run(
    client: MlflowClient,
    experiment: str,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    history: Sequence[Mapping[str, float | None]],
) -> Run:
    """Begin a run that has these parameters, tags, and metrics of each step from 1 on."""
    from mlflow.entities import Metric, Param

    run = client.create_run(experiment, tags=dict(tags))
    now = int(time.time() * 1000)
    metrics = [
        Metric(name, value, now, step)
        for step, figures in enumerate(history, start=1)
        for name, value in figures.items()
        if value is not None
    ]
    client.log_batch(run.info.run_id, params=[Param(k, str(v)) for k, v in params.items()])
    for start in range(0, len(metrics), _MOST_METRICS):
        client.log_batch(run.info.run_id, metrics[start : start + _MOST_METRICS])
    return run


def log_files(client: MlflowClient, run: Run, files: Mapping[str, bytes]) -> None:
    """Keep files with a run, by path."""
    with tempfile.TemporaryDirectory() as copy:
        for path, data in files.items():
            target = Path(copy) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        if files:
            client.log_artifacts(run.info.run_id, copy)


def _log_model(
    client: MlflowClient, run: Run, directory: str, complete: Callable[[Path], None] | None
) -> None:
    with tempfile.TemporaryDirectory() as copy:
        store.copy(directory, copy)
        if complete is not None:
            complete(Path(copy))
        client.log_artifacts(run.info.run_id, copy, MODEL)


def _find_version(
    client: MlflowClient, name: str, identity: Mapping[str, str]
) -> ModelVersion | None:
    found = client.search_model_versions(f"name = '{name}' and {tagged(identity)}")
    return found[0] if found else None


def _register(client: MlflowClient, name: str, run: Run, tags: Mapping[str, str]) -> ModelVersion:
    with _made_meanwhile():
        client.create_registered_model(name)
    source = f"{run.info.artifact_uri}/{MODEL}"
    return client.create_model_version(name, source, run.info.run_id, tags=dict(tags))


@contextmanager
def _made_meanwhile() -> Iterator[None]:
    """Let what is to be made be there already: another run may have made it just now."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def tagged(tags: Mapping[str, str]) -> str:
    """What finds, in a search, all that has these tags."""
    return " and ".join(f'tags.`{name}` = "{value}"' for name, value in tags.items())
