"""The registered models as pages show them: what serves, how it compares, where it is from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard import registry, store
from trainyard.champions import PREVIOUS_TAG, PROMOTED_TAGS, VERDICT_TAG
from trainyard.layout import join
from trainyard.tracking import RUN_DIR_TAG
from trainyard_airflow import settings
from trainyard_airflow.gate import SMALLER_IS_BETTER
from trainyard_airflow.ui.training import result_of

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

_PAGE = 500
_MOST_IDS = 200
_MOST_RUNS = 40
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
            "headline": headline(self.metrics),
            "promoted": {"when": when, "who": who, "why": why} if when else None,
            "verdict": self.tags.get(VERDICT_TAG),
            "dataset": self.tags.get("trainyard.dataset"),
        }


def headline(metrics: Mapping[str, float]) -> dict[str, Any] | None:
    """The metric by which versions are told apart in one number, of the rows that judged them."""
    for split in _SPLITS:
        for name in _HEADLINES:
            if f"{split}_{name}" in metrics:
                return {
                    "metric": name,
                    "split": split,
                    "value": metrics[f"{split}_{name}"],
                    "smaller_is_better": name in SMALLER_IS_BETTER,
                }
    return None


def all_versions() -> dict[str, list[Version]]:
    """Every version of every model, the newest ones first.

    Raises:
        JobError: the registry does not answer.
    """
    os.environ["MLFLOW_TRACKING_URI"] = settings.tracking_uri()
    client = registry.client()
    with registry.answering():
        models = list(_pages(client.search_registered_models))
        found = {model.name: _versions_of(model) for model in models}
        runs = _runs([v.run_id for versions in found.values() for v in versions if v.run_id])
    root = settings.store_root()
    return {
        model.name: [_version(model, one, runs, root) for one in found[model.name]]
        for model in models
    }


def model_versions(name: str) -> list[Version]:
    """The versions of one model; none where there is no such model.

    Raises:
        JobError: the registry does not answer.
    """
    from mlflow.exceptions import MlflowException

    os.environ["MLFLOW_TRACKING_URI"] = settings.tracking_uri()
    client = registry.client()
    with registry.answering():
        try:
            model = client.get_registered_model(name)
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return []
            raise
        found = _versions_of(model)
        runs = _runs([one.run_id for one in found if one.run_id])
    return [_version(model, one, runs, settings.store_root()) for one in found]


def _versions_of(model: RegisteredModel) -> list[ModelVersion]:
    quote = '"' if "'" in model.name else "'"
    wanted = f"name = {quote}{model.name}{quote}"
    search = registry.client().search_model_versions
    found = _pages(lambda **page: search(wanted, **page))
    return sorted(found, key=lambda one: -int(one.version))


def _runs(run_ids: Sequence[str]) -> dict[str, Run]:
    """The MLflow runs of versions, by their ids; one that was deleted is not there."""
    client = registry.client()
    experiments = [one.experiment_id for one in _pages(client.search_experiments)]
    runs: dict[str, Run] = {}
    for start in range(0, len(run_ids), _MOST_IDS):
        ids = ", ".join(f"'{run_id}'" for run_id in run_ids[start : start + _MOST_IDS])
        wanted = f"attributes.run_id IN ({ids})"
        found = client.search_runs(experiments, wanted, max_results=_MOST_IDS)
        runs |= {run.info.run_id: run for run in found}
    return runs


def _pages(search: Callable[..., Any]) -> Iterator[Any]:
    token = None
    while True:
        page = search(max_results=_PAGE, page_token=token)
        yield from page
        if not (token := page.token):
            return


def _version(
    model: RegisteredModel, found: ModelVersion, runs: Mapping[str, Run], root: str
) -> Version:
    number = str(found.version)
    run = runs.get(found.run_id or "")
    run_dir = found.tags.get(RUN_DIR_TAG)
    inside = store.within(root, run_dir) if run_dir else None
    parts = inside.split("/") if inside else []
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
        metrics=dict(run.data.metrics) if run else {},
        params=dict(run.data.params) if run else {},
        tags=dict(found.tags),
    )


def details(version: Version) -> dict[str, Any]:
    """What the page of a version shows besides its curves."""
    judged, used = _lineage(version)
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
    address = re.sub(r"//[^/@]*@", "//", uri).rstrip("/")
    return f"{address}/#/experiments/{version.mlflow_experiment_id}/runs/{version.mlflow_run_id}"


def _lineage(version: Version) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """How a version was judged in the run that made it, and which runs have scored with it."""
    if version.made_in is None:
        return None, []
    dag, run = version.made_in
    root = settings.store_root()
    judged, used = None, []
    runs = store.list_names(join(root, dag))
    newest = sorted(runs, reverse=True)[:_MOST_RUNS]
    for each in dict.fromkeys([run, *newest]):
        for result in _results(join(root, dag, each)):
            is_own = (result.get("model") or {}).get("version") == version.version
            if not is_own or result["model"].get("name") != version.name:
                continue
            if result["job"] == "evaluate" and each == run:
                judged = {"metrics": result["metrics"], "champion": result["champion"]}
            elif result["job"] == "predict":
                used.append(
                    {"directory": each, "rows": result["rows"], "finished": result["finished"]}
                )
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
