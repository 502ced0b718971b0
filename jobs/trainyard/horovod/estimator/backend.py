"""Starts Horovod's ranks for an estimator, as the tasks of a Spark barrier stage."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard.access import Access
from trainyard.barrier.engine import LaunchSettings
from trainyard.barrier.launch import BarrierLauncher, run_again
from trainyard.barrier.slots import check_possible
from trainyard.errors import SettingError, nearest
from trainyard.horovod.launch import HorovodEngine

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")

_SETTING = "num_proc"

_SILENT = ("stdout", "stderr", "verbose", "prefix_output_with_timestamp", "use_gloo", "nics")
"""What `horovod.spark.run` took and has nothing to say here: ranks write into the executors' logs,
and find their network interface by the driver's address."""

_REFUSED = {
    "use_mpi": ("ranks talk by Gloo", "Leave it out; no MPI is needed."),
    "extra_mpi_args": ("ranks talk by Gloo", "Leave it out; no MPI is needed."),
    "executable": ("Spark says which Python a rank has", "Set PYSPARK_PYTHON."),
}


class SparkBackend:
    """Starts ranks as Spark tasks, together or not at all.

    Args:
        num_proc: how many; by default as many as Spark has slots (`spark.default.parallelism`).
        env: environment variables of the ranks.
        start_timeout: seconds until every rank has a slot.
        stall_timeout: seconds after which a rank that does not answer ends the others.
        relaunches: how often ranks that were killed start again, from the last checkpoint.
        others: what else `horovod.spark.run` took: where it is about its output, nothing comes of
            it.

    Raises:
        SettingError: an argument has no meaning here, with what replaced it.
    """

    def __init__(
        self,
        num_proc: int | None = None,
        env: Mapping[str, str] | None = None,
        *,
        start_timeout: int | None = None,
        stall_timeout: int = 120,
        relaunches: int = 1,
        **others: Any,
    ) -> None:
        for name, value in others.items():
            if name in _REFUSED and value:
                raise SettingError(name, value, *_REFUSED[name])
            if name not in (*_REFUSED, *_SILENT):
                known = ("num_proc", "env", "start_timeout", "stall_timeout", "relaunches")
                problem = "SparkBackend has no such argument"
                raise SettingError(name, value, problem, nearest(name, known))
        is_whole = isinstance(num_proc, int) and not isinstance(num_proc, bool)
        if num_proc is not None and not (is_whole and num_proc >= 1):
            problem = "it is no whole number of ranks from 1 on"
            raise SettingError("num_proc", num_proc, problem, "Set it to 1 or more.")
        self._num_proc = num_proc
        self._env = dict(env or {})
        self._start_timeout = 120 if start_timeout is None else start_timeout
        self.stall_timeout = stall_timeout
        self._relaunches = relaunches

    def num_processes(self) -> int:
        """How many ranks there will be."""
        return self._num_proc or int(active_context().defaultParallelism)

    def check(self) -> None:
        """Raise `SettingError` where Spark can never start the ranks."""
        check_possible(active_context(), self.num_processes(), _SETTING)

    def run(
        self,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[T]:
        """Call a function on every rank, joined to the others by Horovod; results by rank.

        Raises:
            JobError: the ranks cannot start, or one failed; the cause is the first failure's.
        """
        work = functools.partial(fn, *args, **(kwargs or {}))
        with tempfile.TemporaryDirectory(prefix="trainyard-") as directory:
            return self.launch(lambda _: work, run_dir=directory, claim=1, env=env)

    def launch(
        self,
        fn: Callable[[int], Callable[[], T]],
        *,
        run_dir: str,
        claim: int,
        access: Access | None = None,
        env: Mapping[str, str] | None = None,
        note: Callable[[str], None] = print,
    ) -> list[T]:
        """As `run`, and again while ranks are lost.

        Args:
            fn: gives the function for the number of the launch, from 1.
            run_dir: directory that ranks and driver share, for records of ranks that die.
            claim: number of the driver's claim on it.
            access: how it is opened.
            env: environment variables of the ranks.
            note: told of each relaunch.
        """
        settings = LaunchSettings(
            run_dir=run_dir,
            claim=claim,
            start_timeout=self._start_timeout,
            stall_timeout=self.stall_timeout,
            access=access,
        )
        engine = HorovodEngine(
            cycle_time_ms=1.0, stall_timeout=self.stall_timeout, ranks_setting=_SETTING
        )
        launcher = BarrierLauncher(active_context(), settings, engine)
        variables = {**self._env, **(env or {})}

        def on_rank(number: int) -> Callable[[], T]:
            return functools.partial(_with_variables, variables, fn(number))

        return run_again(launcher, on_rank, self.num_processes(), self._relaunches, note)


def _with_variables(variables: Mapping[str, str], fn: Callable[[], T]) -> T:
    """Call a function with variables that the process, which Spark keeps, has not afterwards."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        return fn()
    finally:
        for name in variables:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


def active_context() -> SparkContext:
    """The Spark context of this process, in whatever thread.

    Raises:
        SettingError: there is none.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        raise SettingError("backend", "Spark", "there is no Spark session", "Make one before fit.")
    return context
