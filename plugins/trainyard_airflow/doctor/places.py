"""The store, the registry, the programs, and paths that lie one in another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx

from trainyard import store
from trainyard.errors import JobError, TransientError
from trainyard.specs import Prepare
from trainyard_airflow import settings
from trainyard_airflow.doctor.findings import Finding, error, ok, warning
from trainyard_airflow.doctor.patient import Patient


def look_at_store() -> Iterator[Finding]:
    """Whether the store can be written from here.

    Raises:
        JobError: it cannot.
    """
    root = settings.store_root()
    try:
        store.check_writable(root)
    except JobError:
        raise
    except Exception as problem:  # each filesystem has errors of its own
        raise JobError(
            f"the store {root!r} cannot be written: {type(problem).__name__}: {problem}.",
            "Give Airflow's worker the credentials for it, or set AIRFLOW__TRAINYARD__STORE.",
        ) from problem
    yield ok("store", f"AIRFLOW__TRAINYARD__STORE is {root!r}: it can be written")


def look_at_registry() -> Iterator[Finding]:
    """Whether the model registry answers.

    Raises:
        JobError: it does not.
    """
    uri = settings.tracking_uri()
    if uri.startswith(("http://", "https://")):
        yield _http_registry(uri)
        return
    if uri.startswith("sqlite:///"):
        # MLflow takes seconds to import, and makes the database where there is none.
        path = Path(uri.removeprefix("sqlite:///").partition("?")[0])
        store.check_writable(str(path.parent))
        state = "is there" if path.is_file() else "will be made"
        yield ok("registry", f"MLFLOW_TRACKING_URI is {uri!r}: the database {state}")
        return
    yield from _database(uri)


def look_at_programs(patients: Iterable[Patient]) -> Iterator[Finding]:
    """Whether each job has its program here.

    Raises:
        JobError: one has not.
    """
    jobs = {patient.job.job for patient in patients if patient.job is not None}
    folders = {str(settings.program(job).parent) for job in sorted(jobs)}
    if jobs:
        yield ok("programs", f"{', '.join(sorted(jobs))} in {', '.join(sorted(folders))}")


def look_at_paths(patients: Iterable[Patient]) -> Iterator[Finding]:
    """Whether a source lies where runs are written, or the other way round."""
    root = _plain(settings.store_root())
    for patient, setting, given in _sources(patients):
        source = _plain(given)
        if root.startswith(source):
            yield error(
                patient.task_id,
                JobError(
                    f"setting {setting} is {given!r}, and the store {root!r} lies in"
                    " it: the files of every run would be read as data.",
                    "Put the data into a directory of its own, or set AIRFLOW__TRAINYARD__STORE.",
                ),
            )
        elif source.startswith(root):
            yield warning(
                patient.task_id,
                f"setting {setting} is {given!r}, which lies in the store {root!r}:"
                " retention removes old runs.",
                "Copy the data to a directory of its own.",
            )


def _sources(patients: Iterable[Patient]) -> Iterator[tuple[Patient, str, str]]:
    """Every source of the tasks that prepare a dataset, with the setting that names it."""
    for patient in patients:
        if isinstance(patient.job, Prepare):
            if patient.job.source is not None:
                yield patient, "'source'", patient.job.source
            for name, source in patient.job.tables.items():
                yield patient, f"'tables' for {name!r}", source


def _plain(uri: str) -> str:
    """A path to compare, ending in a slash."""
    return store.real(uri).rstrip("/") + "/"


def _http_registry(uri: str) -> Finding:
    try:
        answer = httpx.get(f"{uri.rstrip('/')}/health", timeout=5.0)
    except httpx.InvalidURL as problem:
        raise JobError(
            f"MLFLOW_TRACKING_URI is {uri!r}, which is no address: {problem}.", "Correct it."
        ) from problem
    except httpx.HTTPError as problem:
        raise TransientError(
            f"MLFLOW_TRACKING_URI is {uri!r}, where nothing answers: {problem}.",
            "Start the MLflow server, or correct the address.",
        ) from problem
    if answer.status_code >= 500:
        raise TransientError(
            f"MLFLOW_TRACKING_URI is {uri!r}, which answers with HTTP {answer.status_code}.",
            "Look into the MLflow server's log.",
        )
    if answer.status_code == 403 and "host" in answer.text.lower():
        raise JobError(
            f"MLFLOW_TRACKING_URI is {uri!r}, which refuses this host name: {answer.text[:200]}.",
            "Start the MLflow server with --allowed-hosts.",
        )
    return ok("registry", f"MLFLOW_TRACKING_URI is {uri!r}: it answers")


def _database(uri: str) -> Iterator[Finding]:
    import sqlalchemy

    shown = uri.split("@")[-1]
    try:
        engine = sqlalchemy.create_engine(uri, pool_pre_ping=True)
        with engine.connect():
            pass
    except Exception as problem:  # each driver has errors of its own
        # What the database itself answers, or that it does not, may be over soon.
        is_its_own = isinstance(problem, sqlalchemy.exc.DBAPIError)
        kind = TransientError if is_its_own else JobError
        raise kind(
            f"MLFLOW_TRACKING_URI names the database {shown!r}, which cannot be opened:"
            f" {type(problem).__name__}.",
            "Start it, check user and password, and install its driver in Airflow's environment.",
        ) from problem
    yield ok("registry", f"MLFLOW_TRACKING_URI names the database {shown!r}: it can be opened")
