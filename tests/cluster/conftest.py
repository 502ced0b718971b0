"""A standalone cluster of real processes, and an Airflow whose connection leads to it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "jobs"))
from tests.e2e.own_airflow import ROOT, clean_environment, free_port, services_up

from services.api import Api
from services.installation import USER, Installation
from services.standalone import Standalone

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="trainyard-test-airflow-"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master that recovers, and two workers of two cores."""
    with Standalone(tmp_path_factory.mktemp("cluster"), recover=True) as standalone:
        yield standalone


@pytest.fixture(scope="session")
def installation(
    tmp_path_factory: pytest.TempPathFactory, cluster: Standalone
) -> Iterator[Installation]:
    """Airflow's services, with nothing changed but the connection."""
    home = tmp_path_factory.mktemp("installation")
    place = Installation(home=home, port=free_port())
    dags = shutil.copytree(ROOT / "dags", home / "dags")
    shutil.copytree(Path(__file__).parent / "dags", dags, dirs_exist_ok=True)
    environment = clean_environment(
        home,
        place.port,
        AIRFLOW__CORE__DAGS_FOLDER=str(dags),
        AIRFLOW_CONN_SPARK_DEFAULT=cluster.connection(),
    )
    with services_up(environment):
        yield place


@pytest.fixture(scope="session")
def api(installation: Installation) -> Api:
    """A session with that Airflow."""
    return Api(installation.url, USER, installation.password())
