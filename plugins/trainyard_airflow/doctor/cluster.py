"""The connection, and what a task asks of its Spark against what there is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainyard.errors import JobError
from trainyard_airflow.capacity import check_fits, check_known_slots, demand, why_wait
from trainyard_airflow.connection import SparkMaster
from trainyard_airflow.doctor.findings import Finding, error, ok, warning
from trainyard_airflow.doctor.patient import Patient
from trainyard_airflow.master_web import read_master
from trainyard_airflow.private_conf import spark_defaults
from trainyard_airflow.spark_conf import read_properties
from trainyard_airflow.submission import job_environment

_EXECUTOR_GPU = "spark.executor.resource.gpu.amount"
_TASK_GPU = "spark.task.resource.gpu.amount"


def look_at_connection(conn_id: str, master: SparkMaster) -> Iterator[Finding]:
    """How a connection was resolved."""
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    source = variable if variable in os.environ else "Airflow's connections"
    slots = "" if master.slots is None else f", {master.slots} tasks at once"
    yield ok(
        "connection",
        f"{conn_id!r} of {source} is the Spark master {master.url}, deploy mode"
        f" {master.deploy_mode}{slots}",
    )
    cores = os.cpu_count() or 1
    if master.url.startswith("local[") and master.slots is not None and master.slots > cores:
        yield warning(
            "connection",
            f"{conn_id!r} is {master.url}, and this machine has {cores} cores.",
            f"Use local[{cores}], or local[*].",
        )


def look_at_cluster(patient: Patient, master: SparkMaster) -> Iterator[Finding]:
    """Slots, cores and memory that a task asks for against those of its master.

    Raises:
        JobError: they are not there; a `TransientError` where more workers may come.
    """
    job = patient.job
    if job is None:
        return
    check_known_slots(job, master)
    if not master.web:
        return
    conf = configuration(patient, master)
    on_cluster = master.deploy_mode == "cluster"
    asked = demand(conf, job, driver_on_cluster=on_cluster)
    try:
        state = read_master(master.web)
    except JobError as problem:  # jobs are submitted without it too
        yield warning(patient.task_id, problem.cause, problem.fix)
        return
    if state.is_ready:
        check_fits(asked, state)
        yield ok(patient.task_id, f"{asked}; {state.url} has {state.cores} cores")
    if reason := why_wait(asked, state):
        yield warning(patient.task_id, f"it will wait: {reason}.", "Wait, or add workers.")


def look_at_settings(
    patient: Patient, master: SparkMaster, *, has_cuda: bool | None
) -> Iterator[Finding]:
    """Spark's settings that exclude each other or what the job does.

    Args:
        has_cuda: whether the jobs' PyTorch is a CUDA build; None where nobody asked it.
    """
    job, conf = patient.job, configuration(patient, master)
    dynamic = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    if dynamic and job is not None and job.slots > 1:
        yield _wrong(
            patient,
            "spark.dynamicAllocation.enabled is 'true', and the tasks of"
            f" {job.job} must start together on executors that stay.",
            "Set it to false, and spark.cores.max or spark.executor.instances to what it needs.",
        )
    executor, task = (_amount(conf, name) for name in (_EXECUTOR_GPU, _TASK_GPU))
    if task > executor:
        yield _wrong(
            patient,
            f"{_TASK_GPU} is {task:g}, and {_EXECUTOR_GPU} is {executor:g}: no executor could run"
            " a task.",
            f"Set {_EXECUTOR_GPU} to {task:g} or more.",
        )
    device = getattr(job, "device", None)
    if device == "gpu" and not task:
        yield _wrong(
            patient,
            f"setting 'device' is 'gpu', and {_TASK_GPU} is not set: Spark gives no task a GPU.",
            f"Set {_EXECUTOR_GPU} and {_TASK_GPU} to 1, or device to cpu.",
        )
    elif task and has_cuda is False and device in ("auto", "gpu"):
        yield _wrong(
            patient,
            f"{_TASK_GPU} is {task:g}, and the jobs' PyTorch is built without CUDA.",
            "Install a CUDA build (TORCH_BACKEND=cuda make setup), or set device to cpu.",
        )


def configuration(patient: Patient, master: SparkMaster) -> dict[str, str]:
    """Spark's configuration of a task: its own before its file's, or that of the installation.

    The spark-submit of a standalone cluster's worker reads the files there, not those of this
    machine; that of YARN and Kubernetes runs here.
    """
    if master.rest is not None:
        return _strings(patient.conf)
    path = patient.properties_file or spark_defaults(job_environment(patient.env_vars))
    return {**(read_properties(Path(path)) if path else {}), **_strings(patient.conf)}


def _strings(conf: Mapping[str, str]) -> dict[str, str]:
    return {name: str(value) for name, value in conf.items()}


def _amount(conf: Mapping[str, str], name: str) -> float:
    try:
        return float(conf.get(name, "0"))
    except ValueError as problem:
        raise JobError(f"{name} is {conf[name]!r}: it is no number.", "Write 1.") from problem


def _wrong(patient: Patient, cause: str, fix: str) -> Finding:
    return error(patient.task_id, JobError(cause, fix))
