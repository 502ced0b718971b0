"""The cluster of docker-compose.yaml, which `make compose-up` has started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from tests.e2e.runs import dag_ids, wait_until  # noqa: E402 - which needs scripts/ too

from services.composed import Composed  # noqa: E402 - lies beside scripts/


@pytest.fixture(scope="session")
def composed() -> Composed:
    """The running cluster, its DAGs read; a test that finds it unhealthy says how to start it."""
    found = Composed.running()
    wait_until(lambda: len(dag_ids(found.api)) == len(list((ROOT / "dags").glob("*.py"))), 120)
    return found
