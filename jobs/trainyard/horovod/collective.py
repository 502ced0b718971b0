"""Horovod's sum over ranks, beside the computation rather than in its way."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import Tensor

POLL_SECONDS = 0.0001
"""How often to look whether a collective is over. Between looks the core is Horovod's own threads';
to look without a pause would take it from them, and from a core that shares its hardware."""


class StallError(Exception):
    """Another rank did not join a collective in time."""


def init() -> None:
    """Start Horovod, whose threads then wait for the end of a time slice to get a busy core.

    They wake every cycle to ask the other ranks whether a collective is due. As batch threads they
    have their fair share of the cores as ever, but do not interrupt the computation each time: with
    a core a rank that took about 10% of it. While the computation waits for them they run at once.
    """
    before = _threads()
    hvd.init()
    for thread in _threads() - before:
        with contextlib.suppress(OSError):  # it ended, or a container forbids it: slower, not wrong
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def _threads() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def sum_over_ranks(tensor: Tensor, name: str, timeout: float) -> Tensor:
    """Add up a tensor over all ranks, in place.

    Args:
        tensor: of one shape and type on all ranks.
        name: of the collective, the same on all ranks.
        timeout: seconds to wait for the others.

    Raises:
        StallError: they did not come.
    """
    if hvd.size() == 1:
        return tensor
    return _wait(hvd.allreduce_async_(tensor, name=name, op=hvd.Sum), name, timeout)


def broadcast(tensor: Tensor, name: str, timeout: float) -> Tensor:
    """Give all ranks the values of rank 0, in place; see `sum_over_ranks`."""
    if hvd.size() == 1:
        return tensor
    return _wait(hvd.broadcast_async_(tensor, root_rank=0, name=name), name, timeout)


def broadcast_bytes(data: bytes, name: str, timeout: float) -> bytes:
    """The bytes that rank 0 gave, on all ranks; see `sum_over_ranks`."""
    length = broadcast(torch.tensor([len(data)]), f"{name}.length", timeout)
    content = torch.zeros(int(length.item()), dtype=torch.uint8)
    if hvd.rank() == 0:
        content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return broadcast(content, name, timeout).numpy().tobytes()


def _wait(handle: int, name: str, timeout: float) -> Tensor:
    began = time.monotonic()
    while not hvd.poll(handle):
        if time.monotonic() - began > timeout:
            raise StallError(f"the other ranks did not join {name!r} within {timeout} seconds")
        time.sleep(POLL_SECONDS)
    result: Tensor = hvd.synchronize(handle)
    return result
