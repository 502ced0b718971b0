"""What the registry knows of where versions came from, and which of them are in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard import registry, store
from trainyard.champions import PREVIOUS_TAG
from trainyard.tracking import PARENT_TAG, RUN_DIR_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run

_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Version:
    """A registered version and its origin.

    Attributes:
        run_dir: the run directory whose job made it, if one of Trainyard's did.
        run_id: the MLflow run that made it, if one did.
        why: what it is used for; empty for nothing.
    """

    name: str
    version: str
    run_dir: str | None
    run_id: str | None
    why: str


def versions() -> list[Version]:
    """Every registered version; one with an alias is used, and the one that served before.

    Raises:
        JobError: the registry does not answer.
    """
    client = registry.client()
    found = []
    with registry.answering():
        for model in registry.pages(client.search_registered_models):
            wanted = {str(version): f"alias {alias}" for alias, version in model.aliases.items()}
            if previous := model.tags.get(PREVIOUS_TAG):
                wanted.setdefault(previous, "it served before the champion")
            found += [
                Version(
                    name=one.name,
                    version=str(one.version),
                    run_dir=one.tags.get(RUN_DIR_TAG),
                    run_id=one.run_id or None,
                    why=wanted.get(str(one.version), ""),
                )
                for one in registry.versions_of(model.name)
            ]
    return found


def remove(version: Version, root: str) -> None:
    """Remove a version and the MLflow run that made it; its files too where they lie in the store.

    Raises:
        JobError: the registry does not answer.
    """
    client = registry.client()
    with registry.answering():
        client.delete_model_version(version.name, version.version)
        if version.run_id is None:
            return
        _remove_run(client.get_run(version.run_id), root)


def remove_search(run_id: str, root: str) -> None:
    """Remove the MLflow run of a search and those of its trials, with files that lie in the store.

    Raises:
        JobError: the registry does not answer.
    """
    client = registry.client()
    with registry.answering():
        run = client.get_run(run_id)
        below = f"tags.`{PARENT_TAG}` = '{run_id}'"
        # One page after the other: what was removed is not found again.
        while found := client.search_runs([run.info.experiment_id], below, max_results=_PAGE):
            for trial in found:
                _remove_run(trial, root)
        _remove_run(run, root)


def _remove_run(run: Run, root: str) -> None:
    if run.info.lifecycle_stage != "deleted":
        registry.client().delete_run(run.info.run_id)
    # MLflow keeps its files in `<experiment's location>/<run>/artifacts`.
    directory = run.info.artifact_uri.removesuffix("/artifacts")
    if directory.endswith(run.info.run_id) and store.within(root, directory):
        store.remove(directory)
