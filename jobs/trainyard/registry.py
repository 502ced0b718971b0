"""The model registry: which version an alias means, and setting it so that it can be trusted.

The registry is MLflow's, found by the environment variable MLFLOW_TRACKING_URI alone. MLflow is
imported where it is used, since that takes seconds; Airflow's side uses this module too.
"""

from __future__ import annotations

import fcntl
import functools
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trainyard.errors import JobError, TransientError

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.store.entities import PagedList
    from mlflow.tracking import MlflowClient

CHAMPION = "champion"
"""Alias of the version that serves."""

CHALLENGER = "challenger"
"""Alias of the version that was trained last."""

TRACKING_URI = "MLFLOW_TRACKING_URI"

T = TypeVar("T")

_SQLITE = "sqlite:///"

_PAGE = 1000  # the most that MLflow gives of experiments and models

_URI = re.compile(r"models:/(?P<name>[^/@]+)(?:/(?P<version>\d+)|@(?P<alias>[^/@]+))")


@dataclass(frozen=True, kw_only=True)
class RegisteredVersion:
    """A version of a registered model.

    Attributes:
        run_id: MLflow run that made it, if one did.
    """

    name: str
    version: str
    run_id: str | None

    @property
    def uri(self) -> str:
        """The version's own URI."""
        return f"models:/{self.name}/{self.version}"


def is_model_uri(uri: str) -> bool:
    """Whether a URI names a registered model; see `resolve` for its forms."""
    return uri.startswith("models:")


def client() -> MlflowClient:
    """A client of the registry.

    Raises:
        JobError: MLFLOW_TRACKING_URI is not set.
    """
    uri = os.environ.get(TRACKING_URI)
    if not uri:
        raise JobError(
            f"the environment variable {TRACKING_URI} is not set.",
            "Set it to the registry's address, such as sqlite:////path/mlflow.db or http://host:5000.",
        )
    return _client(uri)


@cache
def _client(uri: str) -> MlflowClient:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with answering(), _alone_with(uri):
        return MlflowClient(tracking_uri=uri, registry_uri=uri)


@contextmanager
def _alone_with(uri: str) -> Iterator[None]:
    """Keep other processes out while a SQLite database is opened, and perhaps made.

    MLflow makes the tables without a lock: of two first users at once, one fails.
    """
    if not uri.startswith(_SQLITE):
        yield
        return
    database = Path(uri.removeprefix(_SQLITE).split("?")[0])
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        lock = database.with_name(f"{database.name}.lock").open("w")
    except OSError as error:
        raise TransientError(
            f"the model registry's directory {str(database.parent)!r} cannot be written: {error}.",
            f"Make it writable, or change {TRACKING_URI}.",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def answering() -> Iterator[None]:
    """Turn what MLflow raises into a `JobError`."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        line = str(error).strip().splitlines()[0]
        raise TransientError(
            f"the model registry answers: {line}",
            f"Check {TRACKING_URI} and that the registry is up.",
        ) from error


def find_alias(name: str, alias: str) -> RegisteredVersion | None:
    """The version that an alias means now, or None when the model or the alias is not there."""
    return _found(client().get_model_version_by_alias, name, alias)


def find_version(name: str, version: str) -> RegisteredVersion | None:
    """A version, or None when it is not there."""
    return _found(client().get_model_version, name, version)


def _found(ask: Callable[[str, str], ModelVersion], *what: str) -> RegisteredVersion | None:
    """What MLflow answers, or None when it says that there is none."""
    from mlflow.exceptions import MlflowException

    with answering():
        try:
            return _version(ask(*what))
        except MlflowException as error:
            if _is_absent(error):
                return None
            raise


def find(uri: str) -> RegisteredVersion | None:
    """The version that models:/NAME/VERSION or models:/NAME@ALIAS means, or None.

    Raises:
        JobError: the URI has another form, or the registry does not answer.
    """
    parts = _URI.fullmatch(uri)
    if parts is None:
        raise JobError(
            f"setting 'model' is {uri!r}: it is no registered model's URI.",
            "Write it as models:/NAME/VERSION or models:/NAME@ALIAS.",
        )
    if parts["alias"]:
        return find_alias(parts["name"], parts["alias"])
    return find_version(parts["name"], parts["version"])


def resolve(uri: str) -> RegisteredVersion:
    """As `find`, but a version that is not there is an error."""
    found = find(uri)
    if found is None:
        raise JobError(
            f"setting 'model' is {uri!r}: {shown(os.environ[TRACKING_URI])} has no such version.",
            "Check the name and the version or alias, or train and register the model first.",
        )
    return found


def set_alias(name: str, alias: str, version: str) -> RegisteredVersion:
    """Let an alias mean a version, and read it back.

    Raises:
        JobError: the version is not there, or another one was read back.
    """
    wanted = resolve(f"models:/{name}/{version}")
    with answering():
        client().set_registered_model_alias(name, alias, wanted.version)
    found = find_alias(name, alias)
    if found != wanted:
        raise TransientError(
            f"alias {alias!r} of model {name!r} was set to version {version} and then read as "
            f"{found.version if found else 'nothing'}: someone else changes it.",
            "Let one task at a time promote, for example by a pool with one slot.",
        )
    return wanted


def pages(search: Callable[..., PagedList[T]]) -> Iterator[T]:
    """All that one of MLflow's searches finds, however many pages it gives."""
    token = None
    while True:
        page = search(max_results=_PAGE, page_token=token)
        yield from page
        if not (token := page.token):
            return


def versions_of(name: str) -> list[ModelVersion]:
    """Every version of a registered model, as MLflow describes it."""
    quote = '"' if "'" in name else "'"
    search = functools.partial(client().search_model_versions, f"name = {quote}{name}{quote}")
    return list(pages(search))


def download(name: str, version: str) -> str:
    """Copy a version's files to this machine, once a process, and return their directory."""
    return _download(os.environ.get(TRACKING_URI, ""), name, version)


@cache
def _download(uri: str, name: str, version: str) -> str:
    from mlflow.artifacts import download_artifacts

    target = tempfile.mkdtemp(prefix=f"{version}-", dir=_downloads().name)
    with answering():
        source = client().get_model_version_download_uri(name, version)
        return str(download_artifacts(artifact_uri=source, dst_path=target, tracking_uri=uri))


@cache
def _downloads() -> tempfile.TemporaryDirectory[str]:
    """Where downloads lie until the process ends."""
    return tempfile.TemporaryDirectory(prefix="trainyard-models-")


def log_report(
    run_id: str, metrics: Mapping[str, float], directory: Path, artifact_path: str
) -> None:
    """Add metrics and a directory's files to an MLflow run.

    Raises:
        JobError: the run is not there.
    """
    mlflow = client()
    with answering():
        for name, value in metrics.items():
            mlflow.log_metric(run_id, name, value)
        mlflow.log_artifacts(run_id, str(directory), artifact_path)


def _version(found: ModelVersion) -> RegisteredVersion:
    return RegisteredVersion(
        name=found.name, version=str(found.version), run_id=found.run_id or None
    )


def _is_absent(error: Exception) -> bool:
    code = getattr(error, "error_code", "")
    return code == "RESOURCE_DOES_NOT_EXIST" or (
        code == "INVALID_PARAMETER_VALUE" and "alias" in str(error) and "not found" in str(error)
    )


def shown(uri: str) -> str:
    """A registry's address without the user and password that it may hold."""
    return re.sub(r"//[^/@]*@", "//", uri)
