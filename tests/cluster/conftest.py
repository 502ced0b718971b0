"""One standalone cluster of real processes for the tests of a module."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="trainyard-test-airflow-"))

from services.standalone import Standalone


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master that recovers, and two workers of two cores."""
    with Standalone(tmp_path_factory.mktemp("cluster"), recover=True) as standalone:
        yield standalone
