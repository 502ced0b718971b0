"""One Airflow, with its services up, for all the tests here."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "jobs"))

from tests.e2e.own_airflow import ROOT, clean_environment, free_port, services_up

from services.api import Api
from services.installation import USER, Installation


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Airflow's services, up for all the tests here and down after them."""
    home = tmp_path_factory.mktemp("installation")
    place = Installation(home=home, port=free_port())
    # A copy, so that a test can add a DAG as a user does.
    dags = shutil.copytree(ROOT / "dags", home / "dags")
    environment = clean_environment(home, place.port, AIRFLOW__CORE__DAGS_FOLDER=str(dags))
    with services_up(environment):
        yield place


@pytest.fixture(scope="session")
def api(installation: Installation) -> Api:
    """A session with that Airflow."""
    return Api(installation.url, USER, installation.password())
