#!/usr/bin/env python3
"""Run the small cluster of docker-compose.yaml; needs Docker, and Python's standard library alone.

    python3 scripts/compose.py up                build, start, wait until all is healthy
    python3 scripts/compose.py down              stop; the data stays
    python3 scripts/compose.py down --volumes    stop, and remove the data

`up` makes the file .env: a secret for each thing that needs one, and the settings of
docker-compose.yaml that you add. What is in it is kept. Exits with 2 where Docker is missing.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOTENV = ROOT / ".env"
PROJECT = "trainyard"
HEALTHY_SECONDS = 400.0
OLDEST = (1, 29)
KEPT = {
    "postgres": ("POSTGRES_PASSWORD", "AIRFLOW_DB_PASSWORD", "MLFLOW_DB_PASSWORD"),
    "studies": ("STUDIES_DB_PASSWORD",),
}
"""The volumes whose data know passwords of .env, with their names."""

ENDS = "airflow-init"
"""The service that does its work and ends."""

TOO_OFTEN = 3
"""Restarts by Docker after which a service is not waited for."""

PAGES = {
    "Airflow": ("AIRFLOW_PORT", 8080),
    "MLflow": ("MLFLOW_PORT", 5000),
    "Spark master": ("SPARK_MASTER_PORT", 8081),
    "Spark history": ("SPARK_HISTORY_PORT", 18080),
}
"""The published pages, with the settings of their ports and the defaults of these."""


class ComposeError(Exception):
    """What is wrong, and what to do; the message of the program."""


class Compose:
    """The project's containers, as `docker compose` or docker-compose sees them."""

    def __init__(self) -> None:
        self._command = _find()

    def run(self, *arguments: str) -> None:
        """Run a command of it, whose output is the user's to see.

        Raises:
            ComposeError: it fails.
        """
        done = subprocess.run([*self._command, *arguments], cwd=ROOT, check=False)
        if done.returncode:
            raise ComposeError(f"{' '.join([*self._command, *arguments])}: see its output above.")

    def output(self, *arguments: str) -> str:
        """What a command of it prints."""
        command = [*self._command, *arguments]
        return subprocess.run(
            command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def services(self) -> list[str]:
        """The names of the services, in the file's order or another."""
        return self.output("config", "--services").split()

    def container(self, service: str) -> str:
        """The id of a service's container, also if it has ended; empty without one."""
        mine = [
            f"--filter=label=com.docker.compose.{label}"
            for label in (f"project={PROJECT}", f"service={service}", "oneoff=False")
        ]
        return docker("ps", "--all", "--quiet", "--latest", *mine).strip()

    def health(self, service: str) -> str:
        """`healthy`, or `done` where it has ended well, or what it is instead."""
        container = self.container(service)
        if not container:
            return "not made"
        told = json.loads(docker("inspect", "--format", "{{json .}}", container))
        state = told["State"]
        if state["Status"] == "exited":
            is_done = service == ENDS and state["ExitCode"] == 0
            return "done" if is_done else f"ended with {state['ExitCode']}"
        health = str(state.get("Health", {}).get("Status", state["Status"]))
        if health != "healthy" and told["RestartCount"] >= TOO_OFTEN:
            return f"ended {told['RestartCount']} times"
        return health


def docker(*arguments: str) -> str:
    """What a command of Docker's prints."""
    return subprocess.run(
        ["docker", *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main() -> int:
    """Do what the command line says; answer with the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=("up", "down"))
    parser.add_argument("--volumes", action="store_true", help="with down: remove the data too")
    options = parser.parse_args()
    try:
        compose = Compose()
        if options.what == "up":
            up(compose)
        else:
            down(compose, volumes=options.volumes)
    except ComposeError as error:
        print(f"\n{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


def up(compose: Compose) -> None:
    """Build, start, and wait until every service is healthy."""
    complete_dotenv()
    began = time.monotonic()
    compose.run("build")
    built = time.monotonic()
    compose.run("up", "--detach", "--remove-orphans")
    wait_until_healthy(compose)
    for image in ("airflow", "spark"):
        size = int(docker("image", "inspect", "--format", "{{.Size}}", f"{PROJECT}/{image}"))
        print(f"image {PROJECT}/{image}: {size / 1e6:.0f} MB")
    print(f"built in {built - began:.0f} s, healthy {time.monotonic() - built:.0f} s later")
    given = read_dotenv()
    for page, (port, default) in PAGES.items():
        print(f"{page + ':':<15}http://localhost:{given.get(port) or default}")
    print("Airflow's user is admin; the password is AIRFLOW_ADMIN_PASSWORD in .env")


def down(compose: Compose, *, volumes: bool) -> None:
    """Stop and remove the containers."""
    if not DOTENV.exists():
        raise ComposeError("There is no .env: `make compose-up` has not been run here.")
    compose.run("down", "--remove-orphans", *(["--volumes"] if volumes else []))


def wait_until_healthy(compose: Compose) -> None:
    """Wait, and say what is waited for.

    Raises:
        ComposeError: a service ends, or is not healthy in time; with the end of its log.
    """
    services, deadline, told = compose.services(), time.monotonic() + HEALTHY_SECONDS, ""
    while True:
        states = {service: compose.health(service) for service in services}
        waits = {name: state for name, state in states.items() if state not in ("healthy", "done")}
        if not waits:
            return
        text = ", ".join(f"{name} is {state}" for name, state in sorted(waits.items()))
        if text != told:
            print(f"waiting: {text}", flush=True)
            told = text
        broken = [name for name, state in waits.items() if state.startswith("ended")]
        if broken or time.monotonic() > deadline:
            name = (broken or sorted(waits))[0]
            compose.run("logs", "--tail=40", name)
            raise ComposeError(f"{name} is {waits[name]}; the end of its log is above.")
        time.sleep(2)


def complete_dotenv() -> None:
    """Add to .env what it lacks; only this user reads it.

    Raises:
        ComposeError: the data of an earlier one is there, whose passwords nobody knows.
    """
    known = read_dotenv()
    volumes = docker("volume", "ls", "--quiet").split()
    for volume, names in KEPT.items():
        lost = [name for name in names if not known.get(name)]
        if lost and f"{PROJECT}_{volume}" in volumes:
            raise ComposeError(
                f".env lacks {', '.join(lost)}, and the volume {PROJECT}_{volume} was made with"
                " earlier ones.\nPut them back, or remove the data:"
                f" docker volume rm {PROJECT}_{volume}"
            )
    new = {name: value for name, value in _secrets(known) if not known.get(name)}
    if new:
        text = DOTENV.read_text(encoding="utf-8") if DOTENV.exists() else ""
        if text and not text.endswith("\n"):
            text += "\n"
        text += "".join(f"{name}={value}\n" for name, value in new.items())
        written = DOTENV.with_name(f"{DOTENV.name}.new")
        written.unlink(missing_ok=True)
        written.touch(mode=0o600)
        written.write_text(text, encoding="utf-8")
        written.replace(DOTENV)
    DOTENV.chmod(0o600)


def read_dotenv() -> dict[str, str]:
    """The settings of .env."""
    if not DOTENV.exists():
        return {}
    lines = DOTENV.read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("=") for line in lines if not line.lstrip().startswith("#")]
    return {name.strip(): value.strip() for name, is_pair, value in pairs if is_pair}


def _secrets(known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """All that must be in .env, made anew."""
    yield "COMPOSE_PROJECT_NAME", PROJECT
    yield "AIRFLOW_ADMIN_PASSWORD", secrets.token_urlsafe(12)
    yield "AIRFLOW_FERNET_KEY", base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    yield "AIRFLOW_SECRET_KEY", secrets.token_urlsafe(32)
    yield "AIRFLOW_JWT_SECRET", secrets.token_urlsafe(48)
    for database in ("POSTGRES", "AIRFLOW_DB", "MLFLOW_DB", "STUDIES_DB"):
        yield f"{database}_PASSWORD", secrets.token_hex(24)
    key = known.get("SPARK_REST_KEY") or base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    yield "SPARK_REST_KEY", key
    yield "SPARK_REST_TOKEN", _token(base64.urlsafe_b64decode(key))


def _token(key: bytes) -> str:
    """A JSON Web Token that Spark's JWSFilter takes, signed with the key."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": "airflow"}]
    signed = ".".join(_base64url(json.dumps(part).encode()) for part in parts)
    signature = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{_base64url(signature)}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _find() -> list[str]:
    """The command of `docker compose`, or of docker-compose."""
    if shutil.which("docker") is None:
        raise ComposeError("There is no `docker` on PATH: install Docker Engine with Compose.")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        raise ComposeError(
            "Docker's engine does not answer: start it, or let DOCKER_HOST name another;"
            " `docker info` says more."
        )
    if not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        said = subprocess.run(
            ["docker-compose", "version", "--short"], capture_output=True, text=True
        )
        version = said.stdout.strip().removeprefix("v")
        if tuple(int(part) for part in version.split(".")[:2]) >= OLDEST:
            return ["docker-compose"]
        raise ComposeError(f"docker-compose is {version}: 1.29 or later is needed.")
    raise ComposeError("Docker has no Compose: install its plugin, or docker-compose 1.29.")


if __name__ == "__main__":
    os.environ.pop("COMPOSE_FILE", None)
    sys.exit(main())
