"""Starts a function on Horovod's ranks: in a Spark barrier stage, or in this process alone."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trainyard import rundir
from trainyard.errors import SettingError, TransientError, UnmetError
from trainyard.executors import is_local
from trainyard.horovod.failures import explain, first_line
from trainyard.horovod.rank import REPORTS, LaunchSettings, Rank, tuning
from trainyard.horovod.slots import check_slots

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")


class Launcher(Protocol):
    """Runs a function once on every rank."""

    def run(self, fn: Callable[[], T], ranks: int) -> list[T]:
        """Call `fn` on each rank, with Horovod initialised, and return what they gave by rank.

        Raises:
            JobError: the ranks cannot start, or one failed; the cause is the first failure's.
        """
        ...


class InProcessLauncher:
    """Runs the only rank in this process."""

    def run(self, fn: Callable[[], T], ranks: int) -> list[T]:
        """Call `fn` here; see `Launcher`."""
        import horovod.torch as hvd

        from trainyard.horovod import collective

        if ranks != 1:
            raise SettingError("ranks", ranks, "one process is one rank", "Set it to 1.")
        collective.init()
        try:
            return [fn()]
        finally:
            hvd.shutdown()


class BarrierLauncher:
    """Runs the ranks as the tasks of a Spark barrier stage, which start together or not at all.

    Horovod's own rendezvous server runs on the driver; each task learns its rank from the hosts of
    all tasks and joins. It can run again in the same session, also after a rank was killed.

    Args:
        context: the Spark context.
        settings: see `LaunchSettings`.
    """

    def __init__(self, context: SparkContext, settings: LaunchSettings) -> None:
        self._context = context
        self._settings = settings
        self._launches = 0

    def run(self, fn: Callable[[], T], ranks: int) -> list[T]:
        """Call `fn` on Spark's executors; see `Launcher`."""
        from horovod.runner.http.http_server import RendezvousServer
        from pyspark import cloudpickle

        deadline = time.monotonic() + self._settings.start_timeout
        check_slots(self._context, ranks, deadline)
        self._launches += 1
        reports = Reports(ranks)
        server = RendezvousServer()
        port = server.start(reports.handler())
        server.init([])
        rank = Rank(
            settings=self._settings,
            launch=self._launches,
            driver=_driver_host(self._context),
            port=port,
        )
        # Read by the rank itself, so that an import that fails there is the rank's own error.
        pickled = cloudpickle.dumps(fn)  # type: ignore[no-untyped-call]
        tag = f"trainyard-ranks-{port}"
        late = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(reports, deadline, tag, late), name="start-watch", daemon=True
        )
        self._context.addJobTag(tag)
        watch.start()
        try:
            tasks = self._context.range(ranks, numSlices=ranks).barrier()
            pairs = tasks.mapPartitions(lambda _: rank.task(pickled)).collect()
        except Exception as error:
            if late.is_set():
                raise self._too_late(ranks, len(reports.ranks)) from None
            raise explain(error, self._deaths(), reports.ranks, ranks, self._settings) from error
        finally:
            reports.complete.set()
            watch.join()
            self._context.removeJobTag(tag)
            server.stop()
        return [result for _, result in sorted(pairs, key=lambda pair: pair[0])]

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


class SparkRunLauncher:
    """Runs the ranks by `horovod.spark.run`: slower to start, and it names no cause of a failure.

    Args:
        context: the Spark context.
        settings: see `LaunchSettings`.
    """

    def __init__(self, context: SparkContext, settings: LaunchSettings) -> None:
        self._context = context
        self._settings = settings

    def run(self, fn: Callable[[], T], ranks: int) -> list[T]:
        """Call `fn` in processes that Spark's tasks start; see `Launcher`."""
        import horovod.spark

        check_slots(self._context, ranks, time.monotonic() + self._settings.start_timeout)
        settings = self._settings

        def task() -> T:
            from trainyard.horovod import collective

            os.environ.update(tuning(settings))
            collective.init()
            return fn()

        try:
            return list(
                horovod.spark.run(
                    task,
                    num_proc=ranks,
                    start_timeout=settings.start_timeout,
                    use_gloo=True,
                    verbose=0,
                )
            )
        except Exception as error:
            raise TransientError(
                f"horovod.spark.run failed: {first_line(error)}.", "Read the ranks' output above."
            ) from error


class Reports:
    """What the ranks tell the driver when they start, through the rendezvous server.

    Attributes:
        ranks: partition, host and process of each rank that has started.
        complete: set once all have.
    """

    def __init__(self, size: int) -> None:
        self.ranks: dict[int, dict[str, Any]] = {}
        self.complete = threading.Event()
        self._size = size

    def handler(self) -> type:
        """The server's request handler, which keeps the reports apart from Horovod's values."""
        from horovod.runner.http.http_server import RendezvousHandler

        reports = self

        class Handler(RendezvousHandler):  # type: ignore[misc]
            def _put_value(self, scope: str, key: str, value: bytes) -> None:
                if scope == REPORTS:
                    reports.add(int(key), json.loads(value))
                else:
                    super()._put_value(scope, key, value)

        return Handler

    def add(self, rank: int, report: dict[str, Any]) -> None:
        """Keep the report of a rank."""
        self.ranks[rank] = report
        if len(self.ranks) == self._size:
            self.complete.set()


def _driver_host(context: SparkContext) -> str:
    """The address at which executors reach this driver."""
    return "127.0.0.1" if is_local(context) else str(context.getConf().get("spark.driver.host"))
