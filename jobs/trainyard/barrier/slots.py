"""Whether Spark can run every rank at the same time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainyard.errors import SettingError, UnmetError
from trainyard.executors import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext


def check_slots(context: SparkContext, ranks: int, deadline: float, setting: str) -> None:
    """Wait until Spark has a slot for every rank.

    Args:
        context: the Spark context.
        ranks: how many there will be.
        deadline: of `time.monotonic`, by which they must have slots.
        setting: name of the setting that says how many.

    Raises:
        SettingError: it never will.
        UnmetError: it had not by the deadline.
    """
    check_possible(context, ranks, setting)
    while (slots := _slots(context)) < ranks:
        if time.monotonic() >= deadline:
            raise UnmetError(*_too_few(context, ranks, slots, "within start_timeout had", setting))
        time.sleep(0.2)


def check_possible(context: SparkContext, ranks: int, setting: str) -> None:
    """Raise `SettingError` where Spark can never have a slot for every rank, as far as it tells."""
    if context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise SettingError(
            "spark.dynamicAllocation.enabled",
            "true",
            "ranks must start together, on executors that stay",
            "Set it to false, and spark.executor.instances or spark.cores.max to what ranks need.",
        )
    check_most(context, ranks, setting)


def check_most(context: SparkContext, tasks: int, setting: str) -> None:
    """Raise `SettingError` where Spark can never run as many tasks at once, as far as it tells."""
    most = _most_slots(context)
    if most is not None and most < tasks:
        raise SettingError(*_too_few(context, tasks, most, "has", setting))


def _slots(context: SparkContext) -> int:
    """Tasks that the present executors run at once, as Spark's own check of barriers counts."""
    scala: Any = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def _most_slots(context: SparkContext) -> int | None:
    """Tasks that can ever run at once, where master and configuration tell."""
    if is_local(context):
        return _slots(context)
    conf = context.getConf()
    cpus = int(conf.get("spark.task.cpus", "1"))
    if cores := conf.get("spark.cores.max"):
        return int(cores) // cpus
    instances, each = conf.get("spark.executor.instances"), conf.get("spark.executor.cores")
    return int(instances) * (int(each) // cpus) if instances and each else None


def all_slots(context: SparkContext) -> int:
    """How many ranks Spark can run at once, as far as it tells now; one at least."""
    most = _most_slots(context)
    return max(1, _slots(context) if most is None else most)


def _too_few(
    context: SparkContext, ranks: int, slots: int, verb: str, setting: str
) -> tuple[str, int, str, str]:
    more = (
        f"use a master of local[{ranks}]"
        if is_local(context)
        else "give Spark more (spark.cores.max, or spark.executor.instances and .cores)"
    )
    return (
        setting,
        ranks,
        f"Spark at {context.master} {verb} {slots} slots, and each rank needs one",
        f"Set {setting} to {slots} or less, or {more}." if slots else f"{more.capitalize()}.",
    )
