"""scripts/compose.py with a Docker that notes how it is called, and docker-compose.yaml itself."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from tests.plugins.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import compose
from services import dotenv
from services.dotenv import ComposeError

OWN = ("localhost/trainyard/airflow", "localhost/trainyard/spark")


class FakeDocker:
    """`docker` without Compose, and docker-compose, which does what `behave` says."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.behave(
            'case $1 in version) echo 1.29.2 ;; esac; env > "$0.env"; echo "$@" >> "$0.log"'
        )
        self.program(
            "docker", "case $1 in compose) exit 1 ;; stop) echo no such >&2; exit 4 ;; esac"
        )

    def behave(self, script: str) -> None:
        self.program("docker-compose", script)

    def program(self, name: str, script: str) -> None:
        program = self.place / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def variables(self) -> dict[str, str]:
        """What docker-compose was called with."""
        lines = (self.place / "docker-compose.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def commands(self) -> list[str]:
        return (self.place / "docker-compose.log").read_text().splitlines()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    monkeypatch.setattr(dotenv, "DOTENV", tmp_path / ".env")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return FakeDocker(tmp_path)


def test_docker_is_called_with_what_env_says(
    fake: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fake.place / ".env").write_text("AIRFLOW_PORT=8090\n")
    monkeypatch.setenv("AIRFLOW_PORT", "1")
    monkeypatch.setenv("COMPOSE_FILE", "/elsewhere.yaml")
    compose.Compose().run("up")
    assert fake.variables()["AIRFLOW_PORT"] == "8090"
    assert fake.variables()["COMPOSE_PROJECT_NAME"] == "trainyard"
    assert "COMPOSE_FILE" not in fake.variables()


@pytest.mark.parametrize("kept", ["", "POSTGRES_PASSWORD=kept\n"])
def test_down_needs_no_secret(fake: FakeDocker, monkeypatch: pytest.MonkeyPatch, kept: str) -> None:
    """As after an upgrade, whose docker-compose.yaml asks for a new one."""
    (fake.place / ".env").write_text(kept)
    monkeypatch.setattr(sys, "argv", ["compose.py", "down", "--volumes"])
    assert compose.main() == 0
    assert fake.commands()[-1] == "down --remove-orphans --volumes"
    assert fake.variables()["STUDIES_DB_PASSWORD"]
    assert (fake.variables()["POSTGRES_PASSWORD"] == "kept") == bool(kept)
    assert (fake.place / ".env").read_text() == kept


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("true", "docker-compose says '' of its version"),
        ("echo 1.25.0", "docker-compose says '1.25.0' of its version"),
        ("echo broken >&2; exit 3", "docker-compose version --short ended with 3:\nbroken"),
    ],
)
def test_a_docker_compose_that_cannot_do_it_is_named(
    fake: FakeDocker, script: str, problem: str
) -> None:
    fake.behave(script)
    with pytest.raises(ComposeError) as refused:
        compose.Compose()
    assert problem in str(refused.value)


def test_a_failed_command_says_why(
    fake: FakeDocker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ComposeError, match="docker stop it ended with 4:\nno such"):
        compose.docker("stop", "it")
    fake.behave('test "$1" = version && echo 1.29.2')
    monkeypatch.setattr(sys, "argv", ["compose.py", "down"])
    assert compose.main() == 2
    assert "docker-compose down --remove-orphans failed" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "mode"), [("dags", 0o700), ("dags/one.py", 0o640)])
def test_what_the_containers_cannot_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int
) -> None:
    monkeypatch.setattr(compose, "ROOT", tmp_path)
    (tmp_path / "dags/__pycache__").mkdir(parents=True)
    (tmp_path / "dags/__pycache__").chmod(0o700)
    (tmp_path / "dags").chmod(0o755)
    (tmp_path / "dags/one.py").touch()
    (tmp_path / "dags/one.py").chmod(0o644)
    compose.check_mounted()
    (tmp_path / name).chmod(mode)
    with pytest.raises(ComposeError, match=f"cannot read {name}, .*\n    chmod -R go\\+rX dags"):
        compose.check_mounted()


def test_a_port_of_another_program_is_named(
    fake: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "PAGES", {"Spark history": compose.PAGES["Spark history"]})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (fake.place / ".env").write_text(f"SPARK_HISTORY_PORT={port}\n")
        with pytest.raises(ComposeError, match=f"SPARK_HISTORY_PORT is {port}, where another"):
            compose.check_ports(compose.Compose())
        fake.program("docker", f"case $1 in compose) exit 1 ;; port) echo 127.0.0.1:{port} ;; esac")
        compose.check_ports(compose.Compose())  # its own container does
    fake.program("docker", "case $1 in compose) exit 1 ;; esac")
    compose.check_ports(compose.Compose())


def test_what_ended_at_the_start_shows_its_log(fake: FakeDocker) -> None:
    fake.behave("""
        echo "$@" >> "$0.log"
        case "$*" in version*) echo 1.29.2 ;; *services) echo one ;; up*) exit 1 ;; esac
    """)
    told = '{"State": {"Status": "exited", "ExitCode": 2}}'
    fake.program(
        "docker", f"case $1 in compose) exit 1 ;; ps) echo id ;; inspect) echo '{told}' ;; esac"
    )
    with pytest.raises(ComposeError, match=r"docker-compose up .* failed"):
        compose.start(compose.Compose())
    assert fake.commands()[-1] == "logs --tail=40 one"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    return dict(found)


def test_what_reaches_what(services: dict[str, Any]) -> None:
    def on(network: str) -> set[str]:
        named = {name for name, service in services.items() if network in service["networks"]}
        return {"airflow" if name.startswith("airflow-") else name for name in named}

    workers = {"spark-worker-1", "spark-worker-2"}
    assert on("control") == {"airflow", "spark-master"}
    assert on("database") == {"airflow", "mlflow", "postgres"}
    assert on("tracking") == {"airflow", "mlflow"}
    assert on("cluster") == {"mlflow", "spark-history", "spark-master", "studies", *workers}


def test_every_service_is_bounded(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert name == "airflow-init" or service["restart"] == "unless-stopped"


def test_own_images_are_built_and_never_pulled(services: dict[str, Any]) -> None:
    images = {service["image"] for service in services.values()}
    assert images == {*OWN, "postgres:17"}
    assert {service["image"] for service in services.values() if "build" in service} == set(OWN)
    assert compose.IMAGES == OWN


def test_postgresql_is_asked_for_a_password_as_jobs_are(services: dict[str, Any]) -> None:
    """Over the loopback the official image trusts everyone."""
    for name in ("postgres", "studies"):
        check = services[name]["healthcheck"]["test"][1]
        assert "PGPASSWORD=$$" in check
        assert f" psql -h {name} " in check
        assert services[name]["init"] is False, "PostgreSQL is the first process, as its own user"


def test_pages_are_published(services: dict[str, Any]) -> None:
    published = {
        (name, *port.removeprefix("127.0.0.1:").rsplit(":", 1))
        for name, service in services.items()
        for port in service.get("ports", ())
    }
    assert published == {
        (service, f"${{{setting}:-{default}}}", str(port))
        for service, port, setting, default in compose.PAGES.values()
    }
