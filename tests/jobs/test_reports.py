"""Ranks meet at the driver over HTTP."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainyard.barrier.reports import Desk, Reports
from trainyard.errors import TransientError


def test_each_gets_the_hosts_of_all() -> None:
    reports = Reports(3)
    with reports.open("127.0.0.1", 20) as desk, ThreadPoolExecutor(3) as pool:
        hosts = ["b", "a", "b"]
        assert list(pool.map(desk.meet, range(3), hosts)) == [hosts] * 3
        assert desk.address(0) == "127.0.0.1"
        with pytest.raises(TransientError, match="404"):
            Desk(line=dataclasses.replace(desk.line, token="another")).meet(0, "a")
    assert reports.complete.is_set()
    # Ranks of one host follow each other: the third task is rank 1.
    assert [(rank, report["partition"]) for rank, report in sorted(reports.ranks.items())] == [
        (0, 0),
        (1, 2),
        (2, 1),
    ]
    assert {report["pid"] for report in reports.ranks.values()} == {os.getpid()}


def test_one_that_waits_in_vain_says_so() -> None:
    reports = Reports(2)
    with reports.open("127.0.0.1", 1) as desk:
        with pytest.raises(TransientError, match=r"task 0 on .* cannot meet the other ranks"):
            desk.meet(0, "a")
        assert len(reports) == 1
        assert not reports.ranks
    with pytest.raises(TransientError, match=r"Set spark\.driver\.host"):
        desk.meet(0, "a")
