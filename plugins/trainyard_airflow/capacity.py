"""Whether a submission fits its standalone cluster: ever, and now.

On such a cluster a driver takes cores too. A driver that got its core while the executors that it
needs can get none waits, and holds the core; a few of them starve each other for ever. So a
submission is counted as a whole, before it is made.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainyard.errors import JobError, TransientError
from trainyard.specs import RunDirectory
from trainyard_airflow.connection import SparkMaster
from trainyard_airflow.master_web import ALIVE, MasterState, Worker

_MEMORY = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_MIB = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2}

STARTING_SECONDS = 60.0
"""How long a driver that runs may take until its application registers; 3 to 4 s are usual."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What a submission asks of the cluster.

    Attributes:
        job: its name, for messages.
        slots: tasks that must run at the same time.
        driver_cores: 0 where the driver runs elsewhere.
        driver_memory: MiB.
        task_cores: cores of a task.
        executor_cores: None where each worker gives one executor all its cores.
        executor_memory: MiB.
        most_cores: limit on the executors' cores together, if there is one.
        gpus: GPUs of an executor.
        slots_setting: what the job calls its number of slots, for messages.
    """

    job: str
    slots: int
    driver_cores: int
    driver_memory: int
    task_cores: int = 1
    executor_cores: int | None = None
    executor_memory: int = 1024
    most_cores: int | None = None
    gpus: int = 0
    slots_setting: str = RunDirectory.slots_setting

    def __str__(self) -> str:
        each = f"{self.executor_cores or 'all'} cores and {self.executor_memory} MiB each"
        cores = self.slots * self.task_cores
        executors = f"{cores} cores of executors ({each}) for {self.slots} tasks at once"
        if not self.driver_cores:
            return f"{self.job} needs {executors}"
        return (
            f"{self.job} needs {self.driver_cores} cores, {self.driver_memory} MiB for its driver"
            f" and {executors}: {self.driver_cores} + {cores} = {self.driver_cores + cores} cores"
        )


def demand(conf: Mapping[str, str], job: RunDirectory, *, driver_on_cluster: bool) -> Demand:
    """What Spark's configuration makes a submission ask for.

    Args:
        conf: Spark's configuration, spark-defaults.conf included where there is one.
        job: the job.
        driver_on_cluster: whether a worker runs the driver.

    Raises:
        JobError: the settings cannot be read, or exclude each other.
    """
    asked = Demand(
        job=job.job,
        slots=job.slots,
        slots_setting=job.slots_setting,
        driver_cores=(_count(conf, "spark.driver.cores") or 1) if driver_on_cluster else 0,
        driver_memory=memory(conf, "spark.driver.memory"),
        task_cores=_count(conf, "spark.task.cpus") or 1,
        executor_cores=_count(conf, "spark.executor.cores"),
        executor_memory=memory(conf, "spark.executor.memory"),
        most_cores=_count(conf, "spark.cores.max"),
        gpus=_count(conf, "spark.executor.resource.gpu.amount", least=0) or 0,
    )
    if asked.executor_cores is not None and asked.executor_cores < asked.task_cores:
        raise JobError(
            f"spark.executor.cores is {asked.executor_cores}, and spark.task.cpus is"
            f" {asked.task_cores}: no executor could run a task.",
            f"Set spark.executor.cores to {asked.task_cores} or more.",
        )
    possible = _at_most(asked)
    if possible is not None and possible < job.slots:
        raise JobError(
            f"spark.cores.max is {asked.most_cores}, which gives {possible} tasks at once, and"
            f" {job.job} runs {job.slots}.",
            f"Set spark.cores.max to {_cores_for(asked)} or more"
            + (f", or {job.slots_setting} to {possible} or less." if possible else "."),
        )
    return asked


def check_known_slots(job: RunDirectory, master: SparkMaster) -> None:
    """Check that a master whose slots are known without asking it has enough of them.

    Raises:
        JobError: a job needs more at once.
    """
    if master.slots is not None and job.slots > master.slots:
        raise JobError(
            f"{job.job} runs {job.slots} tasks at once, and the Spark master {master.url} has"
            f" {master.slots} slots.",
            f"Set {job.slots_setting} to {master.slots} or less, or use a connection with more"
            f" slots, such as local[{job.slots}].",
        )


def check_fits(asked: Demand, state: MasterState) -> None:
    """Check that the cluster, with nothing else on it, has room for the driver and the executors.

    Raises:
        TransientError: it never fits the workers that are alive now; what is missing, and what to
            set. More may come.
    """
    idle = [replace(w, cores_free=w.cores, memory_free=w.memory) for w in state.workers]
    reason = _lacks(asked, idle)
    if reason is not None:
        raise TransientError(
            f"{asked}, and the Spark master {state.url} offers {_offered(idle)}; {reason}.",
            _fix(asked, idle),
        )


def why_wait(asked: Demand, state: MasterState, *, now: float | None = None) -> str | None:
    """Why a submission should not be made now, or None when it fits beside what runs.

    What waits already goes first: a driver without a place, an application without executors, and a
    driver so young that its application is not registered, since what it will take is not known.
    """
    if state.status != ALIVE:
        return f"the Spark master {state.url} is {state.status}"
    first = [d.id for d in state.drivers if d.state != "RUNNING"]
    first += [app.id for app in state.applications if app.state == "WAITING"]
    if first:
        return f"{', '.join(first)} waits for cores or memory and goes first"
    if young := _starting(state, time.time() if now is None else now):
        return f"{', '.join(young)} starts, and what it takes is not known yet"
    reason = _lacks(asked, state.workers)
    return None if reason is None else f"{asked}; free are {_offered(state.workers)}; {reason}"


def memory(conf: Mapping[str, str], name: str, default: str = "1g") -> int:
    """A memory setting in MiB, the unit of a bare number.

    Raises:
        JobError: it is no amount of memory.
    """
    text = str(conf.get(name, default))
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise JobError(f"{name} is {text!r}: it is no amount of memory.", "Write it as 512m or 2g.")
    return int(int(match[1]) * _MIB[match[2].lower()])


def _count(conf: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    """A setting that counts something; None where it is not set."""
    if name not in conf:
        return None
    text = str(conf[name]).strip()
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise JobError(
            f"{name} is {text!r}: it is no whole number of {least} or more.",
            f"Write it as {least}, {least + 1} or more, or leave it out.",
        )
    return int(text)


def _at_most(asked: Demand) -> int | None:
    """Tasks at once that spark.cores.max lets run."""
    if asked.most_cores is None:
        return None
    if asked.executor_cores is None:
        return asked.most_cores // asked.task_cores
    executors = asked.most_cores // asked.executor_cores
    return executors * (asked.executor_cores // asked.task_cores)


def _cores_for(asked: Demand) -> int:
    """Cores of executors that run every task at once."""
    if asked.executor_cores is None:
        return asked.slots * asked.task_cores
    each = asked.executor_cores // asked.task_cores
    return -(-asked.slots // each) * asked.executor_cores


def _lacks(asked: Demand, workers: Sequence[Worker]) -> str | None:
    """What the free part of workers lacks, or None when it holds the whole submission."""
    if not workers:
        return "no worker is alive"
    if asked.gpus and not any(worker.gpus >= asked.gpus for worker in workers):
        return f"no worker has {asked.gpus} GPUs"
    slots, driver_on = _room(asked, workers)
    if slots is None:
        return "no worker has room for the driver"
    if slots >= asked.slots:
        return None
    beside = f"with the driver on {driver_on} " if driver_on else ""
    return f"{beside}they run {slots} tasks at once"


def _room(asked: Demand, workers: Sequence[Worker]) -> tuple[int | None, str]:
    """Tasks at once beside the driver, and the worker that runs it; None if none has room for it.

    Spark puts the driver on any worker with room: what is left after the worst choice counts.
    """
    if not asked.driver_cores:
        return _slots(asked, workers), ""
    placements = [(_slots(asked, left), name) for name, left in _placements(asked, workers)]
    return min(placements) if placements else (None, "")


def _placements(asked: Demand, workers: Sequence[Worker]) -> Iterator[tuple[str, list[Worker]]]:
    """Each worker that can run the driver, and what is then free everywhere."""
    for place, worker in enumerate(workers):
        cores = worker.cores_free - asked.driver_cores
        memory_left = worker.memory_free - asked.driver_memory
        if cores >= 0 and memory_left >= 0:
            left = list(workers)
            left[place] = replace(worker, cores_free=cores, memory_free=memory_left)
            yield worker.name, left


def _slots(asked: Demand, workers: Sequence[Worker]) -> int:
    """Tasks at once of the executors that the free part of workers holds."""
    slots = 0
    for worker in workers:
        if worker.gpus < asked.gpus or worker.memory_free < asked.executor_memory:
            continue
        if asked.executor_cores is None:
            slots += worker.cores_free // asked.task_cores
            continue
        by_memory = worker.memory_free // max(1, asked.executor_memory)
        executors = min(worker.cores_free // asked.executor_cores, by_memory)
        slots += executors * (asked.executor_cores // asked.task_cores)
    most = _at_most(asked)
    return slots if most is None else min(slots, most)


def _starting(state: MasterState, now: float) -> list[str]:
    """Young drivers without an application; each of these belongs to one driver before it."""
    registered = sorted(app.started for app in state.applications)
    starting = []
    for driver in sorted(state.drivers, key=lambda driver: driver.started):
        later = [at for at in registered if at >= driver.started]
        if later:
            registered.remove(later[0])
        elif now - driver.started < STARTING_SECONDS:
            starting.append(driver.id)
    return starting


def _offered(workers: Sequence[Worker]) -> str:
    each = ", ".join(f"{w.name} {w.cores_free} cores {w.memory_free} MiB" for w in workers)
    cores = sum(worker.cores_free for worker in workers)
    return f"{cores} cores on {len(workers)} workers" + (f" ({each})" if each else "")


def _fix(asked: Demand, workers: Sequence[Worker]) -> str:
    if not workers:
        return "Start a worker, or check that the workers reach the master."
    if asked.gpus and not any(worker.gpus >= asked.gpus for worker in workers):
        return "Set spark.worker.resource.gpu.amount on the workers, or ask for no GPU."
    needed = asked.driver_cores + _cores_for(asked)
    most = max(worker.memory for worker in workers)
    if max(asked.executor_memory, asked.driver_memory if asked.driver_cores else 0) > most:
        return (
            f"Set spark.executor.memory and spark.driver.memory to {most}m or less, the memory of"
            " the largest worker."
        )
    roomy = [replace(worker, memory_free=2**62) for worker in workers]
    more = (
        "lower spark.driver.memory and spark.executor.memory, or add workers"
        if _lacks(asked, roomy) is None
        else f"add workers, or cores to a worker, until {needed} cores fit"
    )
    slots, _ = _room(asked, workers)
    if not slots:
        return f"{more[0].upper()}{more[1:]}."
    return f"Set {asked.slots_setting} to {slots} or less, or {more}."
