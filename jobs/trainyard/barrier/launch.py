"""Starts a function on ranks, as the tasks of a Spark barrier stage."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trainyard import rundir
from trainyard.barrier.engine import Engine, LaunchSettings
from trainyard.barrier.failures import LostRankError, explain
from trainyard.barrier.reports import Reports
from trainyard.barrier.slots import check_slots
from trainyard.barrier.task import Task
from trainyard.errors import UnmetError
from trainyard.executors import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")


class Launcher(Protocol):
    """Runs a function once on every rank."""

    def run(self, fn: Callable[[], T], ranks: int) -> list[T]:
        """Call `fn` on each rank, joined to the others, and return what they gave by rank.

        Raises:
            JobError: the ranks cannot start, or one failed; the cause is the first failure's.
        """
        ...


class BarrierLauncher:
    """Runs the ranks as the tasks of a Spark barrier stage, which start together or not at all.

    What lets them find each other runs on the driver; each task learns its rank from the hosts of
    all tasks and joins. It can run again in the same session, also after a rank was killed.

    Args:
        context: the Spark context.
        settings: see `LaunchSettings`.
        engine: how ranks find each other.
    """

    def __init__(self, context: SparkContext, settings: LaunchSettings, engine: Engine) -> None:
        self._context = context
        self._settings = settings
        self._engine = engine
        self._launches = 0

    def run(self, fn: Callable[[], T], ranks: int) -> list[T]:
        """Call `fn` on Spark's executors; see `Launcher`."""
        from pyspark import cloudpickle

        deadline = time.monotonic() + self._settings.start_timeout
        check_slots(self._context, ranks, deadline, self._engine.ranks_setting)
        self._launches += 1
        # Read by the rank itself, so that an import that fails there is the rank's own error.
        pickled = cloudpickle.dumps(fn)  # type: ignore[no-untyped-call]
        host = driver_host(self._context)
        reports = Reports(ranks)
        with (
            reports.open(host, self._settings.start_timeout) as desk,
            self._engine.serve(host, ranks) as member,
        ):
            task = Task(
                settings=self._settings,
                launch=self._launches,
                desk=desk,
                member=member,
                lost_errors=self._engine.lost_errors,
            )
            pairs = self._collect(task, pickled, reports, ranks, deadline)
        return [result for _, result in sorted(pairs, key=lambda pair: pair[0])]

    def _collect(
        self, task: Task, pickled: bytes, reports: Reports, ranks: int, deadline: float
    ) -> list[tuple[int, Any]]:
        tag = f"trainyard-ranks-{task.desk.line.port}"
        late = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(reports, deadline, tag, late), name="start-watch", daemon=True
        )
        self._context.addJobTag(tag)
        watch.start()
        try:
            _share_workers(self._context)
            tasks = self._context.range(ranks, numSlices=ranks).barrier()
            return list(tasks.mapPartitions(lambda _: task.run(pickled)).collect())
        except Exception as error:
            if late.is_set():
                raise self._too_late(ranks, len(reports)) from None
            settings, deaths = self._settings, self._deaths()
            raise explain(error, deaths, reports.ranks, ranks, settings, self._engine) from error
        finally:
            reports.complete.set()
            watch.join()
            self._context.removeJobTag(tag)

    def _watch(self, reports: Reports, deadline: float, tag: str, late: threading.Event) -> None:
        if not reports.complete.wait(max(0.0, deadline - time.monotonic())):
            late.set()
            self._context.cancelJobsWithTag(tag)

    def _too_late(self, ranks: int, started: int) -> UnmetError:
        return UnmetError(
            "start_timeout",
            self._settings.start_timeout,
            f"by then {started} of {ranks} ranks had a slot at {self._context.master}",
            "Free the slots that other jobs hold, use fewer ranks, or wait longer.",
        )

    def _deaths(self) -> list[dict[str, Any]]:
        deaths = rundir.read_deaths(self._settings.run_dir, claim=self._settings.claim)
        return [death for death in deaths if death["worker"].startswith(f"launch{self._launches}-")]


def run_again(
    launcher: Launcher,
    fn: Callable[[int], Callable[[], T]],
    ranks: int,
    relaunches: int,
    note: Callable[[str], None],
) -> list[T]:
    """Run a function on ranks, and again while ranks are lost.

    Args:
        launcher: starts the ranks.
        fn: gives the function for the number of the launch, from 1.
        ranks: how many.
        relaunches: how often they are started again at most.
        note: told of each relaunch.

    Raises:
        JobError: a rank failed for a reason of its own, or ranks were lost too often.
    """
    for number in itertools.count(1):
        try:
            return launcher.run(fn(number), ranks)
        except LostRankError as error:
            if number > relaunches:
                raise
            note(
                f"{error.cause} The ranks start again from the last checkpoint: relaunch {number} "
                f"of {relaunches}."
            )
    raise AssertionError


def driver_host(context: SparkContext) -> str:
    """The address at which executors reach this driver."""
    return "127.0.0.1" if is_local(context) else str(context.getConf().get("spark.driver.host"))


def _share_workers(context: SparkContext) -> None:
    """Let ranks use the Python processes of Spark SQL's functions, and those use the ranks'.

    Spark keeps one pool of processes for each environment. That of SQL functions has one variable
    more; without it each kind would start processes and import its libraries, seconds with PyTorch.
    """
    if context.getConf().get(_SIMPLIFIED, "true").lower() == "true":
        context.environment.setdefault("SPARK_SIMPLIFIED_TRACEBACK", "1")


_SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
