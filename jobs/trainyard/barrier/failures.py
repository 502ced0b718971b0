"""Which rank failed first, and why: what Spark raises is often a survivor's error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.barrier.engine import Engine, LaunchSettings
from trainyard.errors import JobError, TransientError
from trainyard.sparkerrors import known_error


class LostRankError(TransientError):
    """A rank was killed or fell silent: started again, it may well do its work."""


def explain(
    error: Exception,
    deaths: Sequence[Mapping[str, Any]],
    reports: Mapping[int, Mapping[str, Any]],
    ranks: int,
    settings: LaunchSettings,
    engine: Engine,
) -> JobError:
    """Say which rank failed first, and why.

    Args:
        error: what Spark raised.
        deaths: the ranks' own records, the first to die first.
        reports: partition, host and process of the ranks that started.
        ranks: number of ranks.
        settings: the launch's.
        engine: the ranks'.
    """
    for death in deaths:
        if death["error"] not in engine.lost_errors:
            return _own_error(death)
    if told := known_error(str(error)):
        return told  # by a rank that could not record it, such as on a full store
    crash = re.search(r"ResultTask\(\d+, (\d+)\)", str(error))
    crashed = [r for r, report in reports.items() if crash and report["partition"] == int(crash[1])]
    dead = {int(death["worker"].rpartition("rank")[2]) for death in deaths}
    if crashed and not dead.intersection(crashed):
        rank = crashed[0]
        who = f"rank {rank} (process {reports[rank]['pid']} on {reports[rank]['host']})"
        return LostRankError(
            f"{who} was killed: it ended without an error of its own.",
            "Most often the kernel does that for want of memory (`dmesg` there tells): raise "
            f"spark.executor.memoryOverhead, put fewer ranks on a machine, or {engine.memory_fix}.",
        )
    silent = sorted(set(range(ranks)) - dead)
    if dead and silent:
        return LostRankError(
            f"rank {', '.join(map(str, silent))} of {ranks} did not answer for stall_timeout = "
            f"{settings.stall_timeout} seconds.",
            "Look at that machine's load and network, or raise stall_timeout for slow ranks.",
        )
    # Where ranks had started and none had an error of its own, an executor or its machine went.
    kind = LostRankError if reports else TransientError
    return kind(
        f"the ranks failed: {first_line(error)}.", "Read the traceback and the executors' logs."
    )


def _own_error(death: Mapping[str, Any]) -> JobError:
    if death.get("cause"):
        kind = JobError if death["permanent"] else TransientError
        lifted = kind(death["cause"], death["fix"])
    else:
        rank = death["worker"].rpartition("-")[2]
        lifted = TransientError(
            f"{rank} on {death['host']} failed with {death['error']}: {death['message']}.",
            "Read its traceback above.",
        )
    lifted.add_note(f"On {death['worker']}, {death['host']}:\n{death['traceback']}")
    return lifted


def first_line(error: Exception) -> str:
    """The line of an error that says most."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[1 if lines[0].startswith("An error occurred while calling") else 0].strip()
