"""Rights by DAG, as FAB's auth manager keeps them, hold for the pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.own_airflow import ROOT


def test_a_viewer_of_one_dag_sees_its_runs_alone(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__AUTH_MANAGER": (
            "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
        ),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of the tests, " * 4,
        "AIRFLOW__TRAINYARD__STORE": str(tmp_path / "store"),
        "PYTHONPATH": f"{ROOT}/jobs:{ROOT}/plugins",
    }
    program = str(Path(__file__).parent / "programs" / "fab_rights.py")
    done = subprocess.run(
        [sys.executable, program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    # Of each, the page and its data: of the DAG that it may read, and of the other one.
    assert answers == {
        "one": [200, 403, 200, 403],
        "admin": [200, 200, 200, 200],
        "nobody": [401, 401, 401, 401],
    }
