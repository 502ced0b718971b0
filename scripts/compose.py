#!/usr/bin/env python3
"""Run the small cluster of docker-compose.yaml; needs Docker, and Python's standard library alone.

    python3 scripts/compose.py up                build, start, wait until all is healthy
    python3 scripts/compose.py down              stop; the data stays
    python3 scripts/compose.py down --volumes    stop, and remove the data

`up` makes the file .env: a secret for each thing that needs one, and the settings of
docker-compose.yaml that you add. What is in it is kept, and goes before the shell's variables.
Exits with 2 where something is wrong.
"""

from __future__ import annotations

import argparse
import errno
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from services import dotenv
from services.dotenv import ComposeError

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ("localhost/trainyard/airflow", "localhost/trainyard/spark")
MOUNTED = ("dags", "docker", "jobs", "plugins")
"""What the containers' users read of this directory."""

HEALTHY_SECONDS = 400.0
OLDEST = (1, 29)

ENDS = "airflow-init"
"""The service that does its work and ends."""

TOO_OFTEN = 3
"""Restarts by Docker after which a service is not waited for."""

PAGES = {
    "Airflow": ("airflow-api-server", 8080, "AIRFLOW_PORT", "8080"),
    "MLflow": ("mlflow", 5000, "MLFLOW_PORT", "5000"),
    "Spark master": ("spark-master", 8080, "SPARK_MASTER_PORT", "8081"),
    "Spark history": ("spark-history", 18080, "SPARK_HISTORY_PORT", "18080"),
}
"""The published pages: the service, its port in its container, the setting of the one on this
machine, and what this is by default."""


class Compose:
    """The project's containers, as `docker compose` or docker-compose sees them."""

    def __init__(self) -> None:
        self._command = _find()

    def run(self, *arguments: str, **defaults: str) -> None:
        """Run a command of it, whose output is the user's to see.

        Args:
            arguments: the command.
            defaults: values of variables that are set nowhere.

        Raises:
            ComposeError: it fails.
        """
        command, env = [*self._command, *arguments], {**defaults, **dotenv.environment()}
        if subprocess.run(command, cwd=ROOT, env=env, check=False).returncode:
            raise ComposeError(f"{shlex.join(command)} failed: see its output above.")

    def services(self) -> list[str]:
        """The names of the services, in the file's order or another."""
        return _output(*self._command, "config", "--services").split()

    @property
    def project(self) -> str:
        """The name that its containers, networks and volumes begin with."""
        return dotenv.environment()["COMPOSE_PROJECT_NAME"]

    def page(self, name: str) -> str:
        """The address of a page on this machine."""
        return f"http://localhost:{self.published(name)}"

    def published(self, name: str) -> str:
        """The port of a page on this machine; empty where its container does not run."""
        service, port, _, _ = PAGES[name]
        told = _try("docker", "port", self.container(service), f"{port}/tcp").stdout.split()
        return told[0].rpartition(":")[2] if told else ""

    def container(self, service: str) -> str:
        """The id of a service's container, also if it has ended; empty without one."""
        mine = [
            f"--filter=label=com.docker.compose.{label}"
            for label in (f"project={self.project}", f"service={service}", "oneoff=False")
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
    """What a command of Docker's prints.

    Raises:
        ComposeError: it fails; with what it said.
    """
    return _output("docker", *arguments)


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
    except (ComposeError, OSError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


def up(compose: Compose) -> None:
    """Build, start, and wait until every service is healthy."""
    check_mounted()
    check_ports(compose)
    dotenv.complete(docker("volume", "ls", "--quiet").split())
    began = time.monotonic()
    compose.run("build")
    built = time.monotonic()
    start(compose)
    wait_until_healthy(compose)
    for image in IMAGES:
        size = int(docker("image", "inspect", "--format", "{{.Size}}", image))
        print(f"image {image}: {size / 1e6:.0f} MB")
    print(f"built in {built - began:.0f} s, healthy {time.monotonic() - built:.0f} s later")
    for page in PAGES:
        print(f"{page + ':':<15}{compose.page(page)}")
    print("Airflow's user is admin; the password is AIRFLOW_ADMIN_PASSWORD in .env")


def down(compose: Compose, *, volumes: bool) -> None:
    """Stop and remove the containers; the secrets that .env may lack are not needed for it."""
    unused = dict(dotenv.secrets_for({}))
    compose.run("down", "--remove-orphans", *(["--volumes"] if volumes else []), **unused)


def check_mounted() -> None:
    """Look whether the containers' users can read what is mounted.

    Raises:
        ComposeError: they cannot, as after a clone under the umask 077.
    """
    for path in [found for top in MOUNTED for found in (ROOT / top, *(ROOT / top).rglob("*"))]:
        needed = 0o005 if path.is_dir() else 0o004
        if path.exists() and "__pycache__" not in path.parts and needed & ~path.stat().st_mode:
            raise ComposeError(
                f"The containers' users cannot read {path.relative_to(ROOT)}, which is mounted:\n"
                f"    chmod -R go+rX {' '.join(MOUNTED)}"
            )


def check_ports(compose: Compose) -> None:
    """Look whether the pages' ports can be listened on.

    Raises:
        ComposeError: another program listens on one.
    """
    settings = dotenv.environment()
    for name, (_, _, setting, default) in PAGES.items():
        port = settings.get(setting) or default
        if port.isdecimal() and port != compose.published(name) and _is_taken(int(port)):
            raise ComposeError(
                f"{setting} is {port}, where another program listens.\n"
                f"End it, or put another port into .env, as {setting}={int(port) + 10}."
            )


def _is_taken(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False


def start(compose: Compose) -> None:
    """Start the services.

    Raises:
        ComposeError: Compose gives up; with the end of the log of what has ended.
    """
    try:
        compose.run("up", "--detach", "--remove-orphans")
    except ComposeError:
        for name in compose.services():
            if compose.health(name).startswith("ended"):
                compose.run("logs", "--tail=40", name)
        raise


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


def _output(*command: str) -> str:
    """What a command prints that ends well."""
    done = _try(*command)
    if done.returncode:
        raise ComposeError(
            f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr.strip()}"
        )
    return done.stdout


def _try(*command: str) -> subprocess.CompletedProcess[str]:
    """A command that may fail."""
    env = dotenv.environment()
    return subprocess.run(
        command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, errors="replace"
    )


def _find() -> list[str]:
    """The command of `docker compose`, or of docker-compose."""
    if shutil.which("docker") is None:
        raise ComposeError("There is no `docker` on PATH: install Docker Engine with Compose.")
    if (info := _try("docker", "info")).returncode:
        raise ComposeError(
            f"Docker's engine does not answer: start it, or let DOCKER_HOST name another.\n"
            f"{info.stderr.strip()}"
        )
    if _try("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        raise ComposeError("Docker has no Compose: install its plugin, or docker-compose 1.29.")
    told = _output("docker-compose", "version", "--short").strip()
    version = re.match(r"v?(\d+)\.(\d+)", told)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise ComposeError(f"docker-compose says {told!r} of its version: 1.29 or later is needed.")
    return ["docker-compose"]


if __name__ == "__main__":
    sys.exit(main())
