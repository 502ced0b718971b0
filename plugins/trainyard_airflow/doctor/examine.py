"""Everything that the doctor looks at, in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from trainyard_airflow.connection import SparkMaster, resolve
from trainyard_airflow.doctor.cluster import (
    look_at_cluster,
    look_at_connection,
    look_at_settings,
)
from trainyard_airflow.doctor.environment import JobsPython, look_at_environment
from trainyard_airflow.doctor.findings import Finding, guarded
from trainyard_airflow.doctor.given import look_at_sources
from trainyard_airflow.doctor.patient import Patient
from trainyard_airflow.doctor.places import (
    look_at_paths,
    look_at_programs,
    look_at_registry,
    look_at_store,
)


def examine(patients: Sequence[Patient]) -> list[Finding]:
    """Look at all that these tasks need; takes as long as importing what the jobs import.

    Args:
        patients: tasks of one DAG, or one without a job for a connection alone.
    """
    looks: list[Callable[[], Iterable[Finding]]] = [
        lambda: guarded("store", look_at_store),
        lambda: guarded("registry", look_at_registry),
        lambda: guarded("programs", lambda: look_at_programs(patients)),
        lambda: guarded("paths", lambda: look_at_paths(patients)),
        *(_spark(group) for group in _groups(patients)),
    ]
    with ThreadPoolExecutor(max_workers=len(looks)) as threads:
        answers = threads.map(lambda look: list(look()), looks)
        return list(dict.fromkeys(finding for findings in answers for finding in findings))


def _spark(patients: Sequence[Patient]) -> Callable[[], Iterator[Finding]]:
    """The look at tasks that are submitted in one way."""
    first = patients[0]

    def look() -> Iterator[Finding]:
        master = resolve(first.conn_id, deploy_mode=first.deploy_mode, binary=first.binary)
        yield from look_at_connection(first.conn_id, master)
        cuda: list[bool] = []
        if master.rest is None:
            yield from guarded("environment", lambda: _environment(patients, master, cuda))
        for patient in patients:
            yield from look_at_sources(patient, master)
            yield from guarded(patient.task_id, lambda p=patient: look_at_cluster(p, master))  # type: ignore[misc]
            yield from guarded(
                patient.task_id,
                lambda p=patient: look_at_settings(p, master, has_cuda=cuda[0] if cuda else None),  # type: ignore[misc]
            )

    return lambda: guarded("connection", look)


def _environment(
    patients: Sequence[Patient], master: SparkMaster, cuda: list[bool]
) -> Iterator[Finding]:
    for found in look_at_environment(patients, master):
        if isinstance(found, JobsPython):
            cuda.append(found.has_cuda)
        else:
            yield found


def _groups(patients: Sequence[Patient]) -> list[list[Patient]]:
    """The tasks that share connection and environment."""
    groups: dict[tuple[object, ...], list[Patient]] = {}
    for patient in patients:
        shared = (patient.conn_id, patient.deploy_mode, patient.binary, patient.archives)
        groups.setdefault((*shared, *sorted(patient.env_vars.items())), []).append(patient)
    return list(groups.values())
