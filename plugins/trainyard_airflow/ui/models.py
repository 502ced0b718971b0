"""The registered models as pages show them: what serves, how it compares, where it is from."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard import registry, store
from trainyard.champions import METRIC_TAG, PREVIOUS_TAG, PROMOTED_TAGS, VERDICT_TAG
from trainyard.layout import join
from trainyard.tracking import RUN_DIR_TAG
from trainyard_airflow import settings
from trainyard_airflow.gate import SMALLER_IS_BETTER
from trainyard_airflow.ui.training import result_of

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel
    from mlflow.tracking import MlflowClient

_MOST_IDS = 200
_REGISTRY_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}
"""MLflow's own would hold a thread of the API server, which has few, for minutes."""

MOST_RUNS = 40
"""Runs of a DAG in which predictions of a version are looked for, the newest ones."""

_HEADLINES = ("accuracy", "rmse")
_SPLITS = ("test", "holdout", "validation")

_GENERATION = re.compile(r"g(\d+)")


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a model.

    Attributes:
        made_in: the directories of the DAG and the run that made it, below the store; None where
            it was made elsewhere.
        metrics: the last value of each metric of its MLflow run.
        headline: the one that tells versions of the model apart.
        params: settings of its training, as MLflow keeps them: texts.
    """

    name: str
    version: str
    created: float
    aliases: tuple[str, ...]
    is_previous: bool
    run_dir: str | None
    made_in: tuple[str, str] | None
    mlflow_run_id: str | None
    mlflow_experiment_id: str | None
    metrics: Mapping[str, float]
    headline: Mapping[str, Any] | None
    params: Mapping[str, str]
    tags: Mapping[str, str]

    @property
    def dag_directory(self) -> str | None:
        """The directory of the DAG that made it, which says who may see it."""
        return self.made_in[0] if self.made_in else None

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON, without what only its own page shows."""
        when, who, why = (self.tags.get(tag) for tag in PROMOTED_TAGS)
        return {
            "version": self.version,
            "created": self.created,
            "aliases": list(self.aliases),
            "is_previous": self.is_previous,
            "headline": self.headline,
            "promoted": {"when": when, "who": who, "why": why} if when else None,
            "verdict": self.tags.get(VERDICT_TAG),
            "dataset": self.tags.get("trainyard.dataset"),
        }


def _headline(metrics: Mapping[str, float], decided: str | None) -> dict[str, Any] | None:
    """One number of a version, of the rows that judged it: of the metric that gates decide by."""
    for name in (decided, *_HEADLINES):
        for split in _SPLITS:
            value = metrics.get(f"{split}_{name}", math.nan)
            if math.isfinite(value):
                return {
                    "metric": name,
                    "split": split,
                    "value": value,
                    "smaller_is_better": name in SMALLER_IS_BETTER,
                }
    return None


def all_versions() -> dict[str, list[Version]]:
    """Every version of every model, the newest ones first.

    Raises:
        JobError: the registry does not answer.
    """
    client = _registry()
    with registry.answering():
        models = list(registry.pages(client.search_registered_models))
        found = {model.name: registry.versions_of(model.name) for model in models}
        runs = _runs([v.run_id for versions in found.values() for v in versions if v.run_id])
    return {model.name: _versions(model, found[model.name], runs) for model in models}


def model_versions(name: str) -> list[Version]:
    """The versions of one model; none where there is no such model.

    Raises:
        JobError: the registry does not answer.
    """
    from mlflow.exceptions import MlflowException

    client = _registry()
    with registry.answering():
        try:
            model = client.get_registered_model(name)
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return []
            raise
        found = registry.versions_of(name)
        runs = _runs([one.run_id for one in found if one.run_id])
    return _versions(model, found, runs)


def _registry() -> MlflowClient:
    os.environ["MLFLOW_TRACKING_URI"] = settings.tracking_uri()
    for name, value in _REGISTRY_PATIENCE.items():
        os.environ.setdefault(name, value)
    return registry.client()


def _runs(run_ids: Sequence[str]) -> dict[str, Run]:
    """The MLflow runs of versions, by their ids; one that was deleted is not there."""
    client = registry.client()
    experiments = [one.experiment_id for one in registry.pages(client.search_experiments)]
    runs: dict[str, Run] = {}
    for start in range(0, len(run_ids), _MOST_IDS):
        ids = ", ".join(f"'{run_id}'" for run_id in run_ids[start : start + _MOST_IDS])
        wanted = f"attributes.run_id IN ({ids})"
        found = client.search_runs(experiments, wanted, max_results=_MOST_IDS)
        runs |= {run.info.run_id: run for run in found}
    return runs


def _versions(
    model: RegisteredModel, found: Sequence[ModelVersion], runs: Mapping[str, Run]
) -> list[Version]:
    """A model's versions, all told by the metric by which a gate decided the last time."""
    newest_first = sorted(found, key=lambda one: -int(one.version))
    decided = next((v.tags[METRIC_TAG] for v in newest_first if METRIC_TAG in v.tags), None)
    root = settings.store_root()
    return [_version(model, one, runs, root, decided) for one in newest_first]


def _version(
    model: RegisteredModel,
    found: ModelVersion,
    runs: Mapping[str, Run],
    root: str,
    decided: str | None,
) -> Version:
    number = str(found.version)
    run = runs.get(found.run_id or "")
    run_dir = found.tags.get(RUN_DIR_TAG)
    inside = store.within(root, run_dir) if run_dir else None
    parts = inside.split("/") if inside else []
    metrics = dict(run.data.metrics) if run else {}
    return Version(
        name=model.name,
        version=number,
        created=found.creation_timestamp / 1000,
        aliases=tuple(sorted(a for a, v in model.aliases.items() if str(v) == number)),
        is_previous=model.tags.get(PREVIOUS_TAG) == number,
        run_dir=run_dir if inside else None,
        made_in=(parts[0], parts[1]) if len(parts) > 2 else None,
        mlflow_run_id=found.run_id or None,
        mlflow_experiment_id=run.info.experiment_id if run else None,
        metrics=metrics,
        headline=_headline(metrics, decided),
        params=dict(run.data.params) if run else {},
        tags=dict(found.tags),
    )


def details(version: Version, newest: Sequence[str]) -> dict[str, Any]:
    """What the page of a version shows besides its curves.

    Args:
        version: the version.
        newest: directories of the runs in which its predictions are looked for.
    """
    judged, used = _lineage(version, newest)
    return {
        **version.to_mapping(),
        "name": version.name,
        "params": dict(sorted(version.params.items())),
        "metrics": {n: version.metrics[n] for n in sorted(version.metrics)},
        "mlflow": {"run_id": version.mlflow_run_id, "url": _mlflow_url(version)},
        "rows": (result_of(version.run_dir) or {}).get("rows") if version.run_dir else None,
        "evaluation": judged,
        "predictions": used,
    }


def _mlflow_url(version: Version) -> str | None:
    """The address of its run in MLflow's own pages, where a server shows them."""
    uri = settings.tracking_uri()
    known = version.mlflow_run_id and version.mlflow_experiment_id
    if not known or not uri.startswith(("http://", "https://")):
        return None
    address = registry.shown(uri).rstrip("/")
    return f"{address}/#/experiments/{version.mlflow_experiment_id}/runs/{version.mlflow_run_id}"


def _lineage(
    version: Version, newest: Sequence[str]
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """How a version was judged in the run that made it, and which runs have scored with it."""
    if version.made_in is None:
        return None, []
    dag, run = version.made_in
    root = settings.store_root()
    judged, used = None, []
    for each in dict.fromkeys([run, *newest]):
        for result in _results(join(root, dag, each)):
            is_own = (result.get("model") or {}).get("version") == version.version
            if not is_own or result["model"].get("name") != version.name:
                continue
            if result["job"] == "evaluate" and each == run:
                judged = {"metrics": result.get("metrics"), "champion": result.get("champion")}
            elif result["job"] == "predict":
                scored = {name: result.get(name) for name in ("rows", "finished")}
                used.append({"directory": each, **scored})
    return judged, used


def _results(run: str) -> Iterable[dict[str, Any]]:
    """The result of each task of a run, of its newest generation."""
    for task in store.list_names(run):
        if not task.startswith(("evaluate", "predict")):
            continue
        generations = [
            int(found[1])
            for name in store.list_names(join(run, task))
            if (found := _GENERATION.fullmatch(name))
        ]
        result = result_of(join(run, task, f"g{max(generations)}")) if generations else None
        if result is not None:
            yield result


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Names whose values differ between two versions, with both values; None where one has none."""
    names = sorted({*one, *other})
    return [
        {"name": name, "a": one.get(name), "b": other.get(name)}
        for name in names
        if one.get(name) != other.get(name)
    ]
