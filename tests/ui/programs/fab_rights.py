"""Asks for pages as users whose rights FAB's auth manager keeps by DAG; prints the answers.

    python fab_rights.py    with Airflow's settings in the environment

The app is Airflow's whole API server with the plugin in it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from airflow.api_fastapi.app import create_app, get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import insert

DAGS = ("mnist_horovod", "flights")


def main() -> None:
    """Make users, ask, print."""
    initdb()
    now = datetime.now(UTC)
    with create_session() as session:
        session.add(DagBundleModel(name="tests"))
        session.flush()
        for dag in DAGS:
            known = {"dag_id": dag, "bundle_name": "tests", "fileloc": "x.py"}
            made = DagModel(**known, has_task_concurrency_limits=False)  # type: ignore[no-untyped-call]
            session.add(made)
        session.flush()
        for dag in DAGS:
            row = {
                "dag_id": dag,
                "run_id": "one",
                "run_type": "manual",
                "state": "success",
                "run_after": now,
                "start_date": now,
                "clear_number": 0,
            }
            session.execute(insert(DagRun.__table__).values(row))
    app = create_app(apps="core")
    with TestClient(app, raise_server_exceptions=False) as client:
        manager: Any = get_auth_manager()
        security = manager.security_manager
        answers = {}
        with manager.flask_app.app_context():
            actions = [("can_read", f"DAG:{DAGS[0]}"), ("can_read", f"DAG Run:{DAGS[0]}")]
            actions += [("menu_access", "DAGs"), ("can_read", "Website")]
            role = security.add_role("OneDag")
            for action, resource in actions:
                permission = security.create_permission(action, resource)
                security.add_permission_to_role(role, permission)
            users = {
                "one": security.add_user("one", "O", "N", "one@example.org", [role], "pw-one"),
                "admin": security.add_user(
                    "boss", "B", "S", "boss@example.org", [security.find_role("Admin")], "pw-boss"
                ),
            }
            tokens = {name: manager.generate_jwt(user) for name, user in users.items()}
        for name, token in {**tokens, "nobody": ""}.items():
            client.cookies.clear()
            if token:
                client.cookies.set(COOKIE_NAME_JWT_TOKEN, token)
            answers[name] = [
                client.get(f"/trainyard/{kind}runs/{dag}/one").status_code
                for kind in ("", "api/")
                for dag in DAGS
            ]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
