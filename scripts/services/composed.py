"""The cluster of docker-compose.yaml as tests see it: its pages, and its containers.

Airflow is asked through the published REST API, the registry through MLflow's, and what lies in a
volume is copied out of a container.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import compose
from services import dotenv
from services.api import Api
from services.installation import USER
from services.testbed import wait_for

SCHEDULER = "airflow-scheduler"


@dataclass(frozen=True, kw_only=True)
class Composed:
    """The running cluster.

    Attributes:
        containers: its services and their containers.
        api: Airflow's REST API.
        settings: what .env says, secrets too.
    """

    containers: compose.Compose
    api: Api
    settings: dict[str, str] = field(repr=False)

    @classmethod
    def running(cls) -> Self:
        """The cluster that runs, all of it healthy.

        Raises:
            ComposeError: it is not.
        """
        containers = compose.Compose()
        settings = dotenv.read()
        if not settings:
            raise dotenv.ComposeError("There is no .env: run `make compose-up` first.")
        for service in containers.services():
            if (state := containers.health(service)) not in ("healthy", "done"):
                raise dotenv.ComposeError(f"{service} is {state}: run `make compose-up`.")
        api = Api(containers.page("Airflow"), USER, settings["AIRFLOW_ADMIN_PASSWORD"])
        return cls(containers=containers, api=api, settings=settings)

    def mlflow(self, path: str, **query: str) -> Any:
        """What MLflow's REST API answers to a GET."""
        return self._json("MLflow", f"/api/2.0/mlflow/{path}?{urlencode(query)}")

    def spark(self) -> dict[str, Any]:
        """What the Spark master's page says of the cluster."""
        return dict(self._json("Spark master", "/json/"))

    def history(self) -> list[dict[str, Any]]:
        """The applications that the history server knows."""
        return list(self._json("Spark history", "/api/v1/applications"))

    def copy_out(self, path: str, target: Path) -> Path:
        """Copy a directory of the store to this machine; times are kept."""
        target.mkdir(parents=True, exist_ok=True)
        container = self.containers.container(SCHEDULER)
        with subprocess.Popen(
            ["docker", "exec", container, "tar", "-C", path, "-c", "."], stdout=subprocess.PIPE
        ) as packed:
            subprocess.run(["tar", "-C", str(target), "-x"], stdin=packed.stdout, check=True)
        return target

    def exec(self, service: str, *command: str) -> str:
        """What a command prints that runs in a service's container."""
        return compose.docker("exec", self.containers.container(service), *command)

    def inspect(self, service: str, what: str) -> str:
        """What Docker knows of a service's container, in the words of its templates."""
        container = self.containers.container(service)
        return compose.docker("inspect", f"--format={{{{{what}}}}}", container).strip()

    def leavings(self) -> dict[str, Any]:
        """What runs hold: slots, cores, drivers, records of them, applications; empty when idle."""
        pool, state = self.api.get("pools", "spark"), self.spark()
        found = {
            "slots": sum(pool[f"{kind}_slots"] for kind in ("running", "queued", "deferred")),
            "cores": state["coresused"],
            "drivers": [driver["id"] for driver in state["activedrivers"]],
            "applications": [app["id"] for app in state["activeapps"]],
            "records": self.exec(SCHEDULER, "find", "/store/drivers", "-name", "*.json").split(),
        }
        return {name: value for name, value in found.items() if value}

    def wait_until_healthy(self, service: str, seconds: float = 120) -> None:
        """Wait for a service that was stopped or started again."""
        wait_for(lambda: self.containers.health(service) == "healthy", seconds, every=1)

    def _json(self, page: str, path: str) -> Any:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{self.containers.page(page)}{path}", timeout=30) as answer:
            return json.load(answer)
