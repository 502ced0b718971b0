"""Where the local installation lies and how Airflow and Spark are configured in it.

Everything that it writes is under one directory, `var/` unless TRAINYARD_HOME says otherwise. A
variable that the user has set already is kept, so that any of Airflow's settings can be overridden.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HOST = "127.0.0.1"
USER = "admin"

MARK = "TRAINYARD_SERVICES"
"""Variable that names the installation in the environment of all that its services start."""

SERVICES = {
    "api-server": ["api-server"],
    # Task logs are read from this disk; no port is opened to serve them.
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
"""The commands of `airflow` that make up an installation, by name."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """One local installation.

    Attributes:
        home: directory of all that it writes.
        port: where the UI and the API listen, on this machine only.
    """

    home: Path
    port: int

    @property
    def airflow_home(self) -> Path:
        """Airflow's own directory: configuration, metadata database, task logs."""
        return self.home / "airflow"

    @property
    def passwords(self) -> Path:
        """The file that holds the user's password."""
        return self.airflow_home / "passwords.json"

    @property
    def logs(self) -> Path:
        """The services' logs; those of the tasks are below `airflow_home`."""
        return self.home / "log"

    @property
    def url(self) -> str:
        """Address of the UI."""
        return f"http://{HOST}:{self.port}"

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment in which Airflow, its tasks and their Spark drivers run.

        Args:
            base: the caller's environment, whose settings win where they can be a choice.
        """
        airflow, jobs = ROOT / ".venv/airflow", ROOT / ".venv/jobs"
        fixed = {
            "AIRFLOW_HOME": str(self.airflow_home),
            "AIRFLOW_CONFIG": str(self.airflow_home / "airflow.cfg"),
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            # Airflow's Python comes first; spark-submit is found in the jobs' environment.
            "PATH": _path([f"{airflow}/bin", f"{jobs}/bin"], base.get("PATH", os.defpath)),
            "PYTHONPATH": _path([f"{ROOT}/jobs", f"{ROOT}/plugins"], base.get("PYTHONPATH", "")),
            "PYSPARK_PYTHON": f"{jobs}/bin/python",
            "PYSPARK_DRIVER_PYTHON": f"{jobs}/bin/python",
            "NO_PROXY": _path([HOST, "localhost"], base.get("NO_PROXY", ""), separator=","),
            "no_proxy": _path([HOST, "localhost"], base.get("no_proxy", ""), separator=","),
        }
        # pip's pyspark is its own SPARK_HOME; one that the shell has may be of another version.
        for spark in jobs.glob("lib/python3*/site-packages/pyspark"):
            fixed["SPARK_HOME"] = str(spark)
        if "AIRFLOW_CONN_SPARK_DEFAULT" not in base:
            # Spark in local mode needs no name of this machine that a resolver knows.
            fixed |= {"SPARK_LOCAL_IP": HOST, "SPARK_LOCAL_HOSTNAME": "localhost"}
        return {**self._defaults(base), **base, **fixed}

    def _defaults(self, base: Mapping[str, str]) -> dict[str, str]:
        store = base.get("AIRFLOW__TRAINYARD__STORE", str(self.home / "store"))
        tracking = Path(store if "://" not in store else self.home) / "mlflow.db"
        return {
            "AIRFLOW__TRAINYARD__STORE": store,
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "MLFLOW_TRACKING_URI": f"sqlite:///{tracking}",
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # A DAG without a schedule runs when it is asked to; a paused one would not even then.
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            # Each is a forked process that waits for a task.
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.airflow_home}/airflow.db",
            # A new or changed file in dags/ shows after seconds, not after five minutes; one that
            # has not changed is read again less often, since each time takes a second of a core.
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
            # Training leaves the API server little of two cores; a slow answer is no failure.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
        }

    def prepare(self) -> None:
        """Make the directories, and the secrets and the password where there are none yet."""
        self.airflow_home.mkdir(parents=True, exist_ok=True)
        self.airflow_home.chmod(0o700)
        self.logs.mkdir(exist_ok=True)
        fernet = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        _create_private(
            self.airflow_home / "airflow.cfg",
            "# Made once for this installation. Other settings: environment variables.\n"
            f"[core]\nfernet_key = {fernet}\n"
            f"[api]\nsecret_key = {secrets.token_urlsafe(32)}\n"
            f"[api_auth]\njwt_secret = {secrets.token_urlsafe(48)}\n",
        )
        _create_private(self.passwords, json.dumps({USER: secrets.token_urlsafe(12)}) + "\n")

    def password(self) -> str:
        """The user's password."""
        return str(json.loads(self.passwords.read_text(encoding="utf-8"))[USER])


def home(base: Mapping[str, str]) -> Path:
    """The directory of the installation that an environment chooses."""
    return Path(base.get("TRAINYARD_HOME") or ROOT / "var").absolute()


def _path(first: list[str], rest: str, *, separator: str = os.pathsep) -> str:
    return separator.join(dict.fromkeys([*first, *filter(None, rest.split(separator))]))


def _create_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, unless it is there; never half of it."""
    if path.exists():
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
        file.write(text)
    part.replace(path)
