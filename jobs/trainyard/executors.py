"""What only a session can know: whether its executors can run what the driver runs.

A cluster's workers have an environment of their own. That it differs from the driver's shows
otherwise deep in a stage, as an error of another name, or not at all.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from trainyard.errors import JobError, TransientError

if TYPE_CHECKING:
    from pyspark import SparkContext

TIMEOUT = "spark.trainyard.executorTimeout"
"""Seconds in which a first executor must be there; 300 unless `spark-submit --conf` says more."""

_SETTLE_SECONDS = 2.0
"""How long further executors, which come one after the other, are waited for."""

_LOOPBACK = ("127.", "localhost", "::1", "[::1]")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a process is and can import.

    Attributes:
        where: host name and path of the Python.
        python: version of Python.
        versions: of each module, by name.
        errors: why a module cannot be imported, by name.
    """

    where: str
    python: str
    versions: dict[str, str]
    errors: dict[str, str]


def check_executors(context: SparkContext, modules: Sequence[str]) -> None:
    """Compare the executors that are there, and how they were reached, with the driver.

    Nothing is asked where the driver is the executor. Where it is not, each executor imports the
    modules, which its tasks need anyway: Spark keeps the Python processes for them.

    Args:
        context: of the session.
        modules: top-level modules that the job's tasks import.

    Raises:
        TransientError: no executor came, or it was lost.
        JobError: one cannot import a module, or has another version of it.
    """
    if is_local(context):
        return
    check_driver_host(str(context.master), context.getConf().get("spark.driver.host", ""))
    slots = _wait_for_slots(context)
    names = ("pyspark", *modules)
    tasks: Any = context.parallelize(range(slots), slots)
    if not _is_dynamic(context):
        tasks = tasks.barrier()
    try:
        found = tasks.mapPartitions(lambda _: iter([report(names)])).collect()
    except Exception as error:
        raise _cannot_run(str(error)) from error
    compare(report(names), found)


def is_local(context: SparkContext) -> bool:
    """Whether the only executor is the driver's process."""
    return re.fullmatch(r"local(\[.*\])?", str(context.master)) is not None


def report(modules: Iterable[str]) -> Report:
    """Import modules here, and say which Python and which versions there are."""
    versions: dict[str, str] = {}
    errors: dict[str, str] = {}
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a library raises when it cannot be loaded
            errors[name] = f"{type(error).__name__}: {str(error).strip() or 'no message'}"
            continue
        package = name.partition(".")[0]
        # An installed package of this name need not be the one that was imported.
        versions[name] = str(getattr(sys.modules[package], "__version__", ""))
        if not versions[name]:
            with suppress(PackageNotFoundError):
                versions[name] = version(package)
    return Report(
        where=f"{socket.gethostname()} ({sys.executable})",
        python=platform.python_version(),
        versions=versions,
        errors=errors,
    )


def compare(driver: Report, executors: Iterable[Report]) -> None:
    """Compare reports.

    Raises:
        JobError: naming the first difference that a job could stumble over.
    """
    for executor in executors:
        for difference in _differences(driver, executor):
            raise JobError(
                difference,
                "Give the executors the driver's environment: install it on the workers and set"
                " PYSPARK_PYTHON to its Python there, or ship it (make archive, --archives).",
            )


def check_driver_host(master: str, host: str) -> None:
    """Refuse a driver's address that means another machine to an executor there.

    Raises:
        JobError: executors are elsewhere, and the driver is at a loopback address.
    """
    masters = master.removeprefix("spark://").split(",")
    elsewhere = master.startswith(("spark://", "yarn", "k8s://")) and not any(
        part.startswith(_LOOPBACK) for part in masters
    )
    if elsewhere and host.startswith(_LOOPBACK):
        raise JobError(
            f"spark.driver.host is {host!r}, where executors of {master} would look for the driver"
            " on their own machine.",
            "Set spark.driver.host, or SPARK_LOCAL_IP of the driver, to an address of the driver's"
            " machine that the workers reach, and unset SPARK_LOCAL_HOSTNAME.",
        )


def _differences(driver: Report, executor: Report) -> Iterator[str]:
    if _minor(executor.python) != _minor(driver.python):
        yield (
            f"the executor at {executor.where} runs Python {executor.python}, and the driver"
            f" {driver.python}."
        )
    for name, error in executor.errors.items():
        if name not in driver.errors:
            yield f"the executor at {executor.where} cannot import {name}: {error}."
    for name, ours in driver.versions.items():
        theirs = executor.versions.get(name, "")
        # What follows a "+" says how a package was built, such as cpu or cu130.
        if theirs and ours and theirs.partition("+")[0] != ours.partition("+")[0]:
            yield (f"the executor at {executor.where} has {name} {theirs}, and the driver {ours}.")


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _is_dynamic(context: SparkContext) -> bool:
    return str(context.getConf().get("spark.dynamicAllocation.enabled")).lower() == "true"


def _wait_for_slots(context: SparkContext) -> int:
    """Wait for an executor, and a moment for the others; tasks that all of them run at once."""
    scala: Any = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    patience = seconds_of(context.getConf().get(TIMEOUT, "300"))
    began = time.monotonic()
    # Under dynamic allocation there may be none before there is work.
    while not (slots := int(scala.maxNumConcurrentTasks(profile))) and not _is_dynamic(context):
        if time.monotonic() - began > patience:
            raise TransientError(
                f"Spark at {context.master} gave this job no executor in {patience:.0f} s.",
                "Look at the application in the master's web UI. Executors that end at once do not"
                f" reach the driver at {context.getConf().get('spark.driver.host', '?')}"
                f" (spark.driver.host) or have no Java; without any, too few cores or too little"
                f" memory is free. {TIMEOUT} sets how long to wait.",
            )
        time.sleep(0.1)
    wanted, changed = _wanted(context), time.monotonic()
    settled = changed + _SETTLE_SECONDS
    while (now := time.monotonic()) < settled and (
        slots < wanted or (not wanted and now < changed + _SETTLE_SECONDS / 4)
    ):
        time.sleep(0.1)
        if (more := int(scala.maxNumConcurrentTasks(profile))) != slots:
            slots, changed = more, time.monotonic()
    return max(1, slots)


def seconds_of(text: str) -> float:
    """The value of `TIMEOUT`.

    Raises:
        JobError: it is no number of seconds.
    """
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text.strip()):
        raise JobError(f"{TIMEOUT} is {text!r}: it is no number of seconds.", "Write it as 300.")
    return float(text)


def _wanted(context: SparkContext) -> int:
    """Cores that the configuration names; 0 where it leaves that to the cluster."""
    conf = context.getConf()
    instances = int(conf.get("spark.executor.instances", "0"))
    cores = conf.get("spark.cores.max") or instances * int(conf.get("spark.executor.cores", "1"))
    return int(cores) // int(conf.get("spark.task.cpus", "1"))


def _cannot_run(text: str) -> JobError:
    """What keeps a Python worker from running anything, from Spark's long account of it."""
    lines = [line.strip() for line in text.splitlines()]
    telling = ("PYTHON_VERSION_MISMATCH", "Error: ", "Cannot run program", "No module named")
    said = [line for line in lines if any(word in line for word in telling)]
    kind = JobError if said else TransientError  # such as an executor that was lost
    return kind(
        f"the executors cannot run the driver's Python code: {said[-1] if said else lines[0]}",
        f"Set PYSPARK_PYTHON to a Python {platform.python_version()} with the driver's packages on"
        f" every worker (it is {os.environ.get('PYSPARK_PYTHON')!r}), or ship one (make archive).",
    )
