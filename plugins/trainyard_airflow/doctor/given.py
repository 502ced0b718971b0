"""What a run was given: values of the trigger form, and the sources that they name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainyard import store
from trainyard.errors import JobError, nearest
from trainyard.specs import Predict, Prepare
from trainyard_airflow.connection import SparkMaster
from trainyard_airflow.doctor.findings import Finding, error, warning
from trainyard_airflow.doctor.patient import Patient, is_later

_ELSEWHERE = ("sample:", "table:")


def look_at_conf(conf: Mapping[str, Any], params: Collection[str]) -> Iterator[Finding]:
    """Whether each value of a run's conf has a field that takes it; Airflow drops no other.

    Args:
        conf: of the DAG run.
        params: names of the DAG's params.
    """
    for name in conf:
        if name in params:
            continue
        text, fix = (
            f"its conf gives {name!r}, which is no field of this DAG.",
            nearest(name, params),
        )
        if fix.startswith("Did you mean"):
            yield error("run", JobError(text, fix))
        else:
            yield warning("run", text, fix)


def look_at_sources(patient: Patient, master: SparkMaster) -> Iterator[Finding]:
    """Whether a task's sources are there, where the driver reads them on this machine."""
    job = patient.job
    if not isinstance(job, Prepare | Predict) or not master.url.startswith("local"):
        return
    tables = job.tables if isinstance(job, Prepare) else {}
    named = {"source": job.source, **{f"tables.{name}": path for name, path in tables.items()}}
    for setting, path in named.items():
        if not isinstance(path, str) or is_later(path) or path.startswith(_ELSEWHERE):
            continue
        if store.is_missing_here(path):
            problem = f"setting {setting!r} is {path!r}: nothing is there."
            yield error(patient.task_id, JobError(problem, "Check the path."))
