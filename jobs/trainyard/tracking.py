"""Records a training in MLflow: its run, its metrics by epoch, and the model version it made.

The tracking server is the one that MLFLOW_TRACKING_URI names. A job that is retried finds what an
earlier attempt recorded by the tags that name its run directory, and adds nothing twice.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard import registry, store
from trainyard.layout import MODEL, join

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

RUN_DIR_TAG = "trainyard.run_dir"
"""Tag of a run and of a model version: the run directory whose job made it."""

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


def track(
    *,
    experiment: str,
    model_name: str,
    run_dir: str,
    model_directory: str,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    history: Sequence[Mapping[str, float | None]],
) -> Tracked:
    """Log a training and register its model, once for each run directory.

    The version's files are a copy among the run's artifacts: a tracking server takes no others.

    Args:
        experiment: name of the experiment; it is made when it is not there.
        model_name: name of the registered model; likewise.
        run_dir: the job's run directory, which identifies the training.
        model_directory: directory of the stored model.
        params: the job's settings.
        tags: what else to record with the run and the version, such as fingerprints.
        history: metrics of each epoch, the first epoch's first.
    """
    client = registry.client()
    tags = {**tags, RUN_DIR_TAG: run_dir}
    run = _find_run(client, experiment, run_dir)
    if run is None:
        run = _log_run(client, experiment, model_directory, params, tags, history)
    version = _find_version(client, model_name, run_dir)
    if version is None:
        version = _register(client, model_name, run, tags)
    made = registry.set_alias(model_name, registry.CHALLENGER, str(version.version))
    return Tracked(name=made.name, version=made.version, run_id=run.info.run_id)


def _find_run(client: MlflowClient, experiment: str, run_dir: str) -> Run | None:
    """The complete run of a run directory; what an interrupted attempt left is removed."""
    known = client.get_experiment_by_name(experiment)
    if known is None:
        return None
    found = client.search_runs([known.experiment_id], _made_in(run_dir))
    for run in found:
        if run.info.status != "FINISHED":
            client.delete_run(run.info.run_id)
    return next((run for run in found if run.info.status == "FINISHED"), None)


def _log_run(
    client: MlflowClient,
    experiment: str,
    model_directory: str,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    history: Sequence[Mapping[str, float | None]],
) -> Run:
    from mlflow.entities import Metric, Param

    run = client.create_run(_experiment(client, experiment), tags=dict(tags))
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
    with tempfile.TemporaryDirectory() as copy:
        for name in store.list_names(model_directory):
            Path(copy, name).write_bytes(store.read_bytes(join(model_directory, name)))
        client.log_artifacts(run.info.run_id, copy, MODEL)
    client.set_terminated(run.info.run_id)
    return run


def _experiment(client: MlflowClient, name: str) -> str:
    known = client.get_experiment_by_name(name)
    if known is not None:
        return str(known.experiment_id)
    database = os.environ[registry.TRACKING_URI]
    # Without a server MLflow would put artifacts into whatever directory the job was started in.
    beside = database.startswith("sqlite:///")
    location = f"{Path(database.removeprefix('sqlite:///')).resolve().parent}/artifacts"
    return str(client.create_experiment(name, artifact_location=location if beside else None))


def _find_version(client: MlflowClient, name: str, run_dir: str) -> ModelVersion | None:
    found = client.search_model_versions(f"name = '{name}' and {_made_in(run_dir)}")
    return found[0] if found else None


def _register(client: MlflowClient, name: str, run: Run, tags: Mapping[str, str]) -> ModelVersion:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    return client.create_model_version(
        name, f"{run.info.artifact_uri}/{MODEL}", run.info.run_id, tags=dict(tags)
    )


def _made_in(run_dir: str) -> str:
    return f'tags.`{RUN_DIR_TAG}` = "{run_dir}"'
