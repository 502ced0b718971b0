"""Starts a function on Horovod's ranks: in a Spark barrier stage, in this process, or by Horovod itself."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trainyard import rundir
from trainyard.errors import JobError, SettingError

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
"""How long a rank whose collective broke lets the rank that broke it be heard first."""

_SCOPE = "trainyard"
_COLLECTIVE_ERROR = "HorovodInternalError"


@dataclass(frozen=True, kw_only=True)
class LaunchSettings:
    """What a launcher needs to know besides the function and the number of ranks.

    Attributes:
        run_dir: run directory, which receives a record of each rank that dies of an error.
        claim: number of the driver's claim on it.
        cycle_time_ms: Horovod's cycle time.
        start_timeout: seconds until every rank has a slot.
        stall_timeout: seconds after which a rank that does not answer ends the others.
    """

    run_dir: str
    claim: int
    cycle_time_ms: float
    start_timeout: int
    stall_timeout: int


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

        if ranks != 1:
            raise SettingError("ranks", ranks, "one process is one rank", "Use 1, or launch on Spark.")
        hvd.init()
        try:
            return [fn()]
        finally:
            hvd.shutdown()


class BarrierLauncher:
    """Runs the ranks as the tasks of a Spark barrier stage, which start together or not at all.

    Horovod's own rendezvous server runs on the driver; each task learns its rank from the hosts of all
    tasks and joins. It can run again in the same session, also after a rank was killed.

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
        reports = _Reports(ranks)
        server = RendezvousServer()
        port = server.start(reports.handler())
        server.init([])
        rank = _Rank(
            settings=self._settings,
            launch=self._launches,
            driver=_driver_host(self._context),
            port=port,
        )
        # Read by the rank itself, so that an import that fails there is the rank's own error.
        pickled = cloudpickle.dumps(fn)
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
                raise _too_late(self._context, ranks, len(reports.ranks)) from None
            raise explain(error, self._deaths(), reports.ranks, ranks, self._settings) from error
        finally:
            reports.complete.set()
            watch.join()
            self._context.removeJobTag(tag)
            server.stop()
        return [result for _, result in sorted(pairs, key=lambda pair: pair[0])]

    def _watch(self, reports: _Reports, deadline: float, tag: str, late: threading.Event) -> None:
        if not reports.complete.wait(max(0.0, deadline - time.monotonic())):
            late.set()
            self._context.cancelJobsWithTag(tag)

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
            import horovod.torch as hvd

            os.environ.update(_tuning(settings))
            hvd.init()
            return fn()

        try:
            return list(
                horovod.spark.run(
                    task, num_proc=ranks, start_timeout=settings.start_timeout, use_gloo=True, verbose=0
                )
            )
        except Exception as error:
            raise JobError(
                f"horovod.spark.run failed: {_first_line(error)}.", "Read the ranks' output above."
            ) from error


def check_slots(context: SparkContext, ranks: int, deadline: float) -> None:
    """Wait until Spark has a slot for every rank.

    Raises:
        SettingError: it never will, or it had not by the deadline (of `time.monotonic`).
    """
    if context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise SettingError(
            "spark.dynamicAllocation.enabled",
            "true",
            "ranks must start together, on executors that stay",
            "Set it to false, and spark.executor.instances or spark.cores.max to what the ranks need.",
        )
    most = _most_slots(context)
    if most is not None and most < ranks:
        raise _too_few(context, ranks, most, "has")
    while (slots := _slots(context)) < ranks:
        if time.monotonic() >= deadline:
            raise _too_few(context, ranks, slots, "within start_timeout had")
        time.sleep(0.2)


def _slots(context: SparkContext) -> int:
    """Tasks that the executors of now can run at once: the number that Spark's barrier check uses."""
    scala: Any = context._jsc.sc()  # type: ignore[attr-defined]
    return int(
        scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
    )


def _most_slots(context: SparkContext) -> int | None:
    """Tasks that can ever run at once, where master and configuration tell."""
    if _is_local(context):
        return _slots(context)
    conf = context.getConf()
    cpus = int(conf.get("spark.task.cpus", "1"))
    if cores := conf.get("spark.cores.max"):
        return int(cores) // cpus
    instances, each = conf.get("spark.executor.instances"), conf.get("spark.executor.cores")
    return int(instances) * (int(each) // cpus) if instances and each else None


def _is_local(context: SparkContext) -> bool:
    return context.master == "local" or context.master.startswith("local[")


def _too_few(context: SparkContext, ranks: int, slots: int, verb: str) -> SettingError:
    where = (
        f"a master of local[{ranks}]"
        if _is_local(context)
        else "more executors or cores (spark.cores.max, spark.executor.instances, spark.executor.cores)"
    )
    return SettingError(
        "ranks",
        ranks,
        f"Spark at {context.master} {verb} {slots} slots, and each rank needs one",
        f"Set ranks to {slots} or less, or give Spark {where}." if slots else f"Give Spark {where}.",
    )


def _too_late(context: SparkContext, ranks: int, started: int) -> SettingError:
    return SettingError(
        "start_timeout",
        ranks,
        f"only {started} of {ranks} ranks had started at {context.master} when it was over",
        "Free slots that other jobs hold, use fewer ranks, or wait longer.",
    )


def _driver_host(context: SparkContext) -> str:
    """The address at which executors reach this driver."""
    return "127.0.0.1" if _is_local(context) else str(context.getConf().get("spark.driver.host"))


class _Reports:
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
        """The server's request handler, which keeps these reports apart from Horovod's own values."""
        from horovod.runner.http.http_server import RendezvousHandler

        reports = self

        class Handler(RendezvousHandler):  # type: ignore[misc]
            def _put_value(self, scope: str, key: str, value: bytes) -> None:
                if scope == _SCOPE:
                    reports.add(int(key), json.loads(value))
                else:
                    super()._put_value(scope, key, value)

        return Handler

    def add(self, rank: int, report: dict[str, Any]) -> None:
        """Keep the report of a rank."""
        self.ranks[rank] = report
        if len(self.ranks) == self._size:
            self.complete.set()


@dataclass(frozen=True, kw_only=True)
class _Rank:
    """Runs inside a barrier task: finds its rank, joins Horovod, calls the function."""

    settings: LaunchSettings
    launch: int
    driver: str
    port: int

    def task(self, pickled: bytes) -> Iterator[tuple[int, Any]]:
        """Call the function; give the rank and what it returned."""
        from horovod.runner.common.util.host_hash import host_hash
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        partition = context.partitionId()
        slot = assign(context.allGather(host_hash()))[partition]
        try:
            result = self._call(pickled, slot, partition)
        except BaseException as error:
            worker = f"launch{self.launch}-rank{slot.rank}"
            rundir.write_death(
                self.settings.run_dir, claim=self.settings.claim, worker=worker, error=error
            )
            if type(error).__name__ == _COLLECTIVE_ERROR:
                # Another rank died. Spark reports the first task that fails: let it be that one.
                time.sleep(PATIENCE_SECONDS)
            raise
        yield slot.rank, result

    def _call(self, pickled: bytes, slot: Any, partition: int) -> Any:
        from horovod.runner.gloo_run import create_slot_env_vars
        from pyspark import cloudpickle

        address = self._report(slot.rank, partition)
        os.environ.update(create_slot_env_vars(slot))
        os.environ.update(_tuning(self.settings))
        os.environ.update(
            HOROVOD_CONTROLLER="gloo",
            HOROVOD_CPU_OPERATIONS="gloo",
            HOROVOD_GLOO_RENDEZVOUS_ADDR=socket.gethostbyname(self.driver),
            HOROVOD_GLOO_RENDEZVOUS_PORT=str(self.port),
        )
        if interface := _interface(address):
            os.environ["HOROVOD_GLOO_IFACE"] = interface
        import horovod.torch as hvd

        hvd.init()
        result = cloudpickle.loads(pickled)()
        hvd.shutdown()
        return result

    def _report(self, rank: int, partition: int) -> str:
        """Tell the driver that this rank runs; return the local address that reaches the driver."""
        report = {"partition": partition, "host": socket.gethostname(), "pid": os.getpid()}
        url = f"http://{self.driver}:{self.port}/{_SCOPE}/{rank}"
        request = urllib.request.Request(url, json.dumps(report).encode(), method="PUT")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=self.settings.start_timeout):  # noqa: S310
                pass
            with socket.create_connection((self.driver, self.port)) as probe:
                return str(probe.getsockname()[0])
        except (urllib.error.URLError, OSError) as error:
            raise JobError(
                f"rank {rank} on {socket.gethostname()} cannot reach the driver at "
                f"{self.driver}:{self.port}: {error}.",
                "Set spark.driver.host to an address of the driver that executors reach, and let them "
                "connect to its ports.",
            ) from error


def assign(hosts: Sequence[str]) -> list[Any]:
    """Horovod's slots by partition: ranks of one host follow each other.

    Args:
        hosts: for each partition, what tells its host from others.
    """
    from horovod.runner.common.util.hosts import HostInfo, get_host_assignments

    names = list(dict.fromkeys(hosts))
    counts = [HostInfo(name, hosts.count(name)) for name in names]
    slots = {(s.hostname, s.local_rank): s for s in get_host_assignments(counts, len(hosts))}
    return [slots[host, hosts[:i].count(host)] for i, host in enumerate(hosts)]


def _tuning(settings: LaunchSettings) -> dict[str, str]:
    return {
        "HOROVOD_CYCLE_TIME": str(settings.cycle_time_ms),
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(5, settings.stall_timeout // 4)),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(settings.stall_timeout),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(settings.stall_timeout),
        "OMP_NUM_THREADS": "1",
    }


def _interface(address: str) -> str | None:
    """The network interface that has an address; Horovod would guess one by the host's name."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(known.address == address for known in addresses):
            return str(name)
    return None


def explain(
    error: Exception,
    deaths: Sequence[dict[str, Any]],
    reports: dict[int, dict[str, Any]],
    ranks: int,
    settings: LaunchSettings,
) -> JobError:
    """Say which rank failed first, and why.

    Args:
        error: what Spark raised.
        deaths: the ranks' own records, the first to die first.
        reports: partition, host and process of the ranks that started.
        ranks: number of ranks.
        settings: the launch's.
    """
    for death in deaths:
        if death["error"] != _COLLECTIVE_ERROR:
            return _own_error(death)
    crash = re.search(r"ResultTask\(\d+, (\d+)\)[^\n]*\n?[^\n]*", str(error))
    crashed = [r for r, report in reports.items() if crash and report["partition"] == int(crash[1])]
    dead = {int(death["worker"].rpartition("rank")[2]) for death in deaths}
    if crashed and not dead.intersection(crashed):
        rank = crashed[0]
        who = f"rank {rank} (process {reports[rank]['pid']} on {reports[rank]['host']})"
        return JobError(
            f"{who} was killed: it ended without an error of its own.",
            "Most often the kernel kills a process for memory (`dmesg` on that machine tells): give it more "
            "(spark.executor.memoryOverhead, fewer ranks a machine), use streaming or a smaller batch_size.",
        )
    silent = sorted(set(range(ranks)) - dead)
    if dead and silent:
        return JobError(
            f"rank {', '.join(map(str, silent))} of {ranks} did not answer for stall_timeout = "
            f"{settings.stall_timeout} seconds.",
            "Look at that machine's load and network; a slow but healthy rank needs a longer stall_timeout.",
        )
    return JobError(
        f"the ranks failed: {_first_line(error)}.", "Read the traceback and the executors' logs."
    )


def _own_error(death: dict[str, Any]) -> JobError:
    if death.get("cause"):
        lifted = JobError(death["cause"], death["fix"])
    else:
        rank = death["worker"].rpartition("-")[2]
        lifted = JobError(
            f"{rank} on {death['host']} failed with {death['error']}: {death['message']}.",
            "Read its traceback above.",
        )
    lifted.add_note(f"On {death['worker']}, {death['host']}:\n{death['traceback']}")
    return lifted


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[1 if lines[0].startswith("An error occurred while calling") else 0].strip()
