"""Horovod's sum over ranks, with a limit to the wait for the others."""

from __future__ import annotations

import time

import horovod.torch as hvd
from torch import Tensor

POLL_SECONDS = 0.0002
"""How often to look whether a collective is over."""


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
    deadline = time.monotonic() + timeout
    while not hvd.poll(handle):
        # A sleep, and not Horovod's own busy wait, leaves the core to the thread that communicates.
        time.sleep(POLL_SECONDS)
        if time.monotonic() > deadline:
            raise StallError(f"the other ranks did not join {name!r} within {timeout} seconds")
    result: Tensor = hvd.synchronize(handle)
    return result
