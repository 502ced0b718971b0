"""Horovod's sum over ranks, with a limit to the wait for the others."""

from __future__ import annotations

import os
import time

import horovod.torch as hvd
from torch import Tensor

SPIN_SECONDS = 0.02
"""How long to look without a pause whether a collective is over; a step's takes a few ms."""

POLL_SECONDS = 0.001
"""How often to look after that, when another rank is late."""


class StallError(Exception):
    """Another rank did not join a collective in time."""


def sum_over_ranks(tensor: Tensor, name: str, timeout: float) -> Tensor:
    """Add up a tensor over all ranks, in place.

    Args:
        tensor: of one shape and type on all ranks.
        name: of the collective, the same on all ranks.
        timeout: seconds to wait for the others.

    Raises:
        StallError: they did not come.
    """
    handle = hvd.allreduce_async_(tensor, name=name, op=hvd.Sum)
    began = time.monotonic()
    while not hvd.poll(handle):
        waited = time.monotonic() - began
        if waited > timeout:
            raise StallError(f"the other ranks did not join {name!r} within {timeout} seconds")
        if waited < SPIN_SECONDS:
            os.sched_yield()  # lets Horovod's own thread have the core
        else:
            time.sleep(POLL_SECONDS)
    result: Tensor = hvd.synchronize(handle)
    return result
