"""What the ranks tell the driver when they start."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainyard.barrier.calls import Line, answering


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where a rank reports; travels to it.

    Attributes:
        line: to the driver.
    """

    line: Line

    def report(self, rank: int, partition: int) -> str:
        """Tell the driver that this rank runs; return the local address that reaches the driver.

        Raises:
            TransientError: it cannot be reached.
        """
        report = {"partition": partition, "host": socket.gethostname(), "pid": os.getpid()}
        self.line.call("rank", rank, report)
        with socket.create_connection((self.line.host, self.line.port)) as probe:
            return str(probe.getsockname()[0])


class Reports:
    """The reports of a launch's ranks.

    Attributes:
        ranks: partition, host and process of each rank that has started.
        complete: set once all have.
    """

    def __init__(self, size: int) -> None:
        self.ranks: dict[int, dict[str, Any]] = {}
        self.complete = threading.Event()
        self._size = size

    def add(self, rank: int, report: dict[str, Any]) -> None:
        """Keep the report of a rank."""
        self.ranks[rank] = report
        if len(self.ranks) == self._size:
            self.complete.set()

    @contextmanager
    def open(self, host: str, timeout: int) -> Iterator[Desk]:
        """Take reports within the block.

        Args:
            host: address at which ranks reach this process.
            timeout: seconds that a rank tries.
        """
        with answering(host, timeout, self.add) as line:
            yield Desk(line=line)
