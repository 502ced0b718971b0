"""What the launcher knows of the engine whose ranks it starts: Horovod, or XGBoost."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from trainyard.access import Access


class Launched(Protocol):
    """The settings of a training job that a launcher reads."""

    @property
    def run_dir(self) -> str:
        """Run directory."""

    @property
    def start_timeout(self) -> int:
        """Seconds until every rank has a slot."""

    @property
    def stall_timeout(self) -> int:
        """Seconds after which a rank that does not answer ends the others."""


@dataclass(frozen=True, kw_only=True)
class LaunchSettings:
    """What a launcher needs to know besides the engine, the function and the number of ranks.

    Attributes:
        run_dir: run directory, which receives a record of each rank that dies of an error.
        claim: number of the driver's claim on it.
        start_timeout: seconds until every rank has a slot.
        stall_timeout: seconds after which a rank that does not answer ends the others.
        access: how the run directory is opened, where its URI does not say all.
    """

    run_dir: str
    claim: int
    start_timeout: int
    stall_timeout: int
    access: Access | None = None

    @classmethod
    def of(cls, spec: Launched, claim: int) -> Self:
        """Those of a training job, under a claim on its run directory."""
        return cls(
            run_dir=spec.run_dir,
            claim=claim,
            start_timeout=spec.start_timeout,
            stall_timeout=spec.stall_timeout,
        )


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank is among the others.

    Attributes:
        host: what tells its host from others.
        rank: its number; ranks of one host follow each other.
        size: how many ranks there are.
        local_rank: its number on its host.
        local_size: ranks on its host.
        cross_rank: number of its host among those that have such a local rank.
        cross_size: how many of these there are.
    """

    host: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


class Member(Protocol):
    """Travels to every task, and joins it to the others."""

    def joined(self, place: Place, address: str) -> AbstractContextManager[None]:
        """The others are there within the block.

        Args:
            place: of this rank.
            address: of this machine, as the driver is reached from it.
        """
        ...


class Engine(Protocol):
    """How ranks of a kind find each other."""

    @property
    def ranks_setting(self) -> str:
        """Name of the setting that says how many ranks there are."""
        ...

    @property
    def lost_errors(self) -> tuple[str, ...]:
        """Names of the errors that are raised on every other rank when one is gone or silent."""
        ...

    @property
    def memory_fix(self) -> str:
        """What makes a rank need less memory."""
        ...

    def serve(self, host: str, ranks: int) -> AbstractContextManager[Member]:
        """Let ranks find each other through this process, the driver, within the block.

        Args:
            host: address at which they reach it.
            ranks: how many there will be.
        """
        ...


def assign(hosts: Sequence[str]) -> list[Place]:
    """The place of each partition's rank: ranks of one host follow each other.

    Args:
        hosts: for each partition, what tells its host from others.
    """
    counts = Counter(hosts)
    totals = itertools.accumulate(counts.values(), initial=0)
    first = dict(zip(counts, totals, strict=False))
    seen: Counter[str] = Counter()
    places = []
    for host in hosts:
        local = seen[host]
        seen[host] += 1
        peers = [other for other, count in counts.items() if count > local]
        places.append(
            Place(
                host=host,
                rank=first[host] + local,
                size=len(hosts),
                local_rank=local,
                local_size=counts[host],
                cross_rank=peers.index(host),
                cross_size=len(peers),
            )
        )
    return places
