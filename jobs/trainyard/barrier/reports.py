"""How the ranks meet when they start: each tells the driver its host, and gets those of all.

By calls to the driver, since a `BarrierTaskContext.allGather` takes a second: it looks for its
answer so often.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainyard.barrier.calls import Line, answering
from trainyard.barrier.engine import assign
from trainyard.errors import TransientError

_LONGER_SECONDS = 5
"""A task waits for the driver's answer so much longer than the driver for the other tasks."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where the tasks of a launch meet; travels to them.

    Attributes:
        line: to the driver.
    """

    line: Line

    def meet(self, partition: int, host: str) -> list[str]:
        """Tell the driver that this task runs; wait for the others.

        Args:
            partition: the task's.
            host: what tells its host from others.

        Returns:
            For each partition what tells its host from others.

        Raises:
            TransientError: the driver cannot be reached, or not all came in time.
        """
        report = {"place": host, "host": socket.gethostname(), "pid": os.getpid()}
        hosts = self.line.call("task", partition, report)
        if hosts is None:
            raise TransientError(
                f"task {partition} on {socket.gethostname()} cannot meet the other ranks: not all "
                "came in time.",
                "Look why the others do not run: Spark's page shows their tasks.",
            )
        return list(hosts)

    def address(self, partition: int) -> str:
        """The local address that reaches the driver.

        Raises:
            TransientError: it cannot be reached.
        """
        return self.line.address("task", partition)


class Reports:
    """The reports of a launch's ranks.

    Attributes:
        ranks: partition, host and process of each rank; empty until all have started.
        complete: set once all have.
    """

    def __init__(self, size: int) -> None:
        self.ranks: dict[int, dict[str, Any]] = {}
        self.complete = threading.Event()
        self._size = size
        self._came: dict[int, dict[str, Any]] = {}

    def __len__(self) -> int:
        """How many tasks have reported."""
        return len(self._came)

    def add(self, partition: int, report: dict[str, Any], timeout: float) -> list[str] | None:
        """Keep a task's report; wait for the others'.

        Returns:
            For each partition what tells its host from others; None where not all came within
            `timeout` seconds.
        """
        self._came[partition] = {"partition": partition, **report}
        if self._are_all():
            places = assign(self._hosts())
            self.ranks = {p.rank: self._came[n] for n, p in enumerate(places)}
            self.complete.set()
        self.complete.wait(timeout)
        return self._hosts() if self._are_all() else None

    def _are_all(self) -> bool:
        return len(self._came) == self._size

    def _hosts(self) -> list[str]:
        return [self._came[partition]["place"] for partition in range(self._size)]

    @contextmanager
    def open(self, host: str, timeout: int) -> Iterator[Desk]:
        """Take reports within the block.

        Args:
            host: address at which tasks reach this process.
            timeout: seconds that a task waits for the others.
        """

        def answer(partition: int, report: dict[str, Any]) -> list[str] | None:
            return self.add(partition, report, timeout)

        with answering(host, timeout + _LONGER_SECONDS, answer) as line:
            yield Desk(line=line)
