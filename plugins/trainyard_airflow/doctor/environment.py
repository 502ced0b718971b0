"""The programs of a submission from this machine, and what the jobs' Python really imports."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.errors import JobError
from trainyard_airflow import preflight, settings
from trainyard_airflow.connection import SparkMaster
from trainyard_airflow.doctor.findings import Finding, error, ok, warning
from trainyard_airflow.doctor.patient import Patient
from trainyard_airflow.submission import job_environment, with_modules

PYTHON = (3, 11)
SPARK = "4.0"
"""The oldest versions that jobs run on."""

_SECONDS = 45
_PROBE = f"""
import json, platform, sys
told = dict(python=platform.python_version(), versions=dict(), errors=dict())
if sys.version_info >= {PYTHON}:
    from trainyard.executors import report
    told = dict(vars(report(sys.argv[1:])))
torch = sys.modules.get("torch")
told["cuda"] = bool(torch and torch.backends.cuda.is_built())
sys.stdout.write("\\n" + json.dumps(told))
"""
"""An older Python cannot load the jobs' library, and is told by its version."""


@dataclass(frozen=True, kw_only=True)
class JobsPython:
    """What the driver's Python said of itself.

    Attributes:
        has_cuda: whether its PyTorch is a CUDA build.
    """

    has_cuda: bool


def look_at_environment(
    patients: Sequence[Patient], master: SparkMaster
) -> Iterator[Finding | JobsPython]:
    """The submitter, and, where the driver runs here, its Python with all that these tasks import.

    Args:
        patients: tasks with one master and one environment.
        master: theirs.

    Raises:
        JobError: a program is missing, too old, or does not run.
    """
    environment = job_environment(patients[0].env_vars)
    submitter = preflight.find_submitter(master.binary, environment)
    found = {"Spark": submitter.spark, "Java": submitter.java, "Python": submitter.python}
    yield ok(
        "environment",
        f"{submitter.spark_submit}: {', '.join(f'{k} {v}' for k, v in found.items() if v)}",
    )
    if submitter.spark and _version(submitter.spark) < _version(SPARK):
        yield error(
            "environment",
            JobError(
                f"{submitter.spark_submit} is of Spark {submitter.spark}; jobs need {SPARK} or"
                " later.",
                "Put a newer spark-submit first on PATH, and unset SPARK_HOME.",
            ),
        )
    if master.deploy_mode == "cluster":
        return  # the driver's Python is where the driver runs
    modules = list(dict.fromkeys(["pyspark", *(m for p in patients for m in p.imports)]))
    yield from _python(submitter, modules, environment)
    if patients[0].archives:
        return
    workers = environment.get("PYSPARK_PYTHON", submitter.python)
    if master.url.startswith("local") and workers != submitter.python:
        yield from _workers_python(workers, submitter.python, environment)


def _python(
    submitter: preflight.Submitter, modules: Sequence[str], environment: Mapping[str, str]
) -> Iterator[Finding | JobsPython]:
    told = _ask(submitter.python, modules, environment)
    yield JobsPython(has_cuda=told["cuda"])
    versions: dict[str, str] = told["versions"]
    named = ", ".join(f"{name} {v}" for name, v in versions.items() if "." not in name)
    yield ok("packages", f"{submitter.python}: Python {told['python']}, {named}")
    if _version(told["python"]) < PYTHON:
        yield error(
            "packages",
            JobError(
                f"PYSPARK_PYTHON is {submitter.python!r}, a Python {told['python']}; jobs need"
                f" {'.'.join(map(str, PYTHON))} or later.",
                "Set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to the jobs' environment.",
            ),
        )
    for name, problem in told["errors"].items():
        yield error(
            "packages",
            JobError(
                f"{submitter.python} cannot import {name}: {problem}.",
                "Install jobs/requirements.txt there (make setup), or set PYSPARK_DRIVER_PYTHON to"
                " the jobs' environment.",
            ),
        )
    spark, pyspark = submitter.spark, versions.get("pyspark", "")
    if spark and pyspark and _version(spark)[:2] != _version(pyspark)[:2]:
        yield warning(
            "packages",
            f"spark-submit is of Spark {spark}, and {submitter.python} has pyspark {pyspark}: the"
            " driver gets the former's.",
            "Use one version: unset SPARK_HOME, or install that pyspark.",
        )


def _workers_python(workers: str, driver: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    theirs, ours = (_ask(python, (), environment)["python"] for python in (workers, driver))
    if _version(theirs)[:2] != _version(ours)[:2]:
        yield error(
            "packages",
            JobError(
                f"PYSPARK_PYTHON is {workers!r}, a Python {theirs}, and the driver's is {driver!r},"
                f" a Python {ours}.",
                "Set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to one Python.",
            ),
        )


def _ask(python: str, modules: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE, *modules],
            env={**with_modules(environment, str(settings.jobs_folder())), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        told: dict[str, Any] = json.loads(answer.stdout.strip().rpartition("\n")[2])
    except (OSError, subprocess.TimeoutExpired, ValueError) as problem:
        raise JobError(
            f"the jobs' Python {python!r} does not run: {type(problem).__name__}: {problem}.",
            "Set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to the Python of the jobs' environment.",
        ) from problem
    return told


def _version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare."""
    return tuple(int(part) for part in text.split(".")[:3] if part.isdecimal())
