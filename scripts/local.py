#!/usr/bin/env python3
"""Airflow on this machine: its UI, scheduler, DAG processor and triggerer.

    scripts/local.py up        start them, wait until they answer, print where the UI is
    scripts/local.py status    say what runs; the exit code is 0 if all of it does
    scripts/local.py down      end them, and every Spark driver that they started
    scripts/local.py env       print the environment for a shell: eval "$(scripts/local.py env)"
    scripts/local.py exec ...  run a command in that environment

PORT chooses the UI's port (8080), TRAINYARD_HOME the directory of all that is written (var/).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from services import installation, processes
from services.installation import HOST, MARK, ROOT, SERVICES, USER, Installation
from services.processes import Process

sys.path.insert(0, str(ROOT / "jobs"))
sys.path.insert(0, str(ROOT / "plugins"))
from trainyard.errors import JobError
from trainyard_airflow.pools import PROMOTION_POOL

START_SECONDS = 180
GRACE_SECONDS = 10


def main() -> int:
    """Do what the command line says; answer with the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=["up", "status", "down", "env", "exec"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of exec: the command")
    options = parser.parse_args()
    try:
        services = Services()
        if options.command == "up":
            services.up()
            print(services.welcome())
        elif options.command == "status":
            return services.status()
        elif options.command == "down":
            services.down()
        elif options.command == "env":
            for name, value in sorted(services.installation.environment(os.environ).items()):
                if os.environ.get(name) != value:
                    print(f"export {name}={shlex.quote(value)}")
        else:
            services.prepare()
            environment = services.installation.environment(os.environ)
            os.execvpe(options.arguments[0], options.arguments, environment)  # noqa: S606
    except JobError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class Services:
    """The services of the installation that the environment chooses."""

    def __init__(self) -> None:
        home = installation.home(os.environ)
        self._record = home / "run" / "services.json"
        self._started = self._read_record()
        port = self._started.get("port") or _port()
        self.installation = Installation(home=home, port=port)

    def up(self) -> None:
        """Start what does not run and wait until it answers.

        Raises:
            JobError: the environments are missing, the port is taken, or a service ended at once.
        """
        with self._lock():
            self._started = self._read_record()
            if self._started and all(service.alive for service in self._services().values()):
                print("It runs already, as it was started; `make down` first to change anything.")
                return
            self._end()
            self.installation = Installation(home=self.installation.home, port=_port())
            _check_environments()
            _check_port(self.installation.port)
            self.installation.prepare()
            self._migrate()
            self._start()

    def prepare(self) -> None:
        """Make what a command of Airflow needs: the configuration and the metadata database."""
        with self._lock():
            _check_environments()
            self.installation.prepare()
            self._migrate()

    def down(self) -> None:
        """End every process of the services.

        Raises:
            JobError: a process did not end.
        """
        with self._lock():
            self._started = self._read_record()
            self._end()
        print("Airflow's services are down.")

    def status(self) -> int:
        """Print each service's state."""
        services = self._services()
        for name in SERVICES:
            alive = name in services and services[name].alive
            print(f"{name:14}", f"runs, pid {services[name].pid}" if alive else "is down")
        if not services or not all(service.alive for service in services.values()):
            return 3
        health = self._health()
        print(f"{'health':14}", ", ".join(f"{part} {state}" for part, state in health.items()))
        print(f"{'UI':14}", self.installation.url)
        return 0 if set(health.values()) == {"healthy"} else 3

    def welcome(self) -> str:
        """Where the UI is and how to log in; the password itself only on a terminal."""
        passwords = _shown(self.installation.passwords)
        login = f"password in {passwords}"
        if sys.stdout.isatty():
            login = f"password {self.installation.password()}  (kept in {passwords})"
        home = os.environ.get("TRAINYARD_HOME")
        chosen = f"TRAINYARD_HOME={shlex.quote(home)} " if home else ""
        return (
            f"Airflow is up: {self.installation.url}\n"
            f"  login  {USER}, {login}\n"
            f"  logs   {_shown(self.installation.logs)}/\n"
            f"  stop   {chosen}make down"
        )

    @property
    def running(self) -> bool:
        """Whether every service's process is alive."""
        services = self._services()
        return bool(services) and all(service.alive for service in services.values())

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self._record.parent.mkdir(parents=True, exist_ok=True)
        with self._record.with_name("lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("Waiting for another start or stop of the services ...", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read_record(self) -> dict[str, Any]:
        """What was started since this machine's last start; empty when nothing was."""
        try:
            record = dict(json.loads(self._record.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return {}
        return record if record["boot"] == processes.boot_id() else {}

    def _services(self) -> dict[str, Process]:
        started = self._started.get("services", {})
        return {name: Process(**identity) for name, identity in started.items()}

    def _members(self, *, api_server: bool = True) -> list[Process]:
        """Every process that the services are or have started, in whatever session."""
        sessions = {
            service.pid
            for name, service in self._services().items()
            if (leader := processes.find(service.pid)) is None or leader.started == service.started
            if api_server or name != "api-server"
        }
        home = str(self.installation.home)
        api_session = self._services()["api-server"].pid if self._started and not api_server else 0
        return [
            process
            for process in processes.running()
            if process.pid != os.getpid() and process.session != api_session
            if process.session in sessions or processes.has_variable(process, MARK, home)
        ]

    def _end(self) -> None:
        # The API server goes last: the tasks that end now tell it their state.
        processes.end(lambda: self._members(api_server=False), grace=GRACE_SECONDS)
        left = processes.end(self._members, grace=GRACE_SECONDS)
        if left:
            pids = " ".join(str(process.pid) for process in left)
            raise JobError(f"processes {pids} do not end.", f"End them yourself: kill -9 {pids}")
        self._record.unlink(missing_ok=True)
        self._started = {}

    def _migrate(self) -> None:
        """Make or update the metadata database, where this Airflow has not done so already."""
        environment = self.installation.environment(os.environ)
        database = environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
        core = next(
            (ROOT / ".venv/airflow/lib").glob("python3*/site-packages/apache_airflow_core-*")
        )
        stamp = self.installation.airflow_home / "migrated"
        local = Path(database.removeprefix("sqlite:///"))
        done = f"{core.name} {PROMOTION_POOL}"
        if local.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == done:
            return
        print("Migrating the metadata database ...", file=sys.stderr, flush=True)
        log = self.installation.logs / "migrate.log"
        # Promotions use a pool of one slot, since two at once could undo one another.
        pool = ["pools", "set", PROMOTION_POOL, "1", "one promotion at a time"]
        with log.open("wb") as output:
            for arguments in (["db", "migrate"], pool):
                command = subprocess.run(
                    ["airflow", *arguments],
                    env=environment,
                    stdout=output,
                    stderr=output,
                    cwd=ROOT,
                    check=False,
                )
                if command.returncode != 0:
                    raise JobError(
                        f"the metadata database was not migrated:\n{_tail(log)}",
                        f"See {_shown(log)}.",
                    )
        stamp.write_text(done, encoding="utf-8")

    def _start(self) -> None:
        environment = self.installation.environment(os.environ)
        environment[MARK] = str(self.installation.home)
        began = time.time()
        children: dict[str, subprocess.Popen[bytes]] = {}
        identities: dict[str, dict[str, int]] = {}
        print(f"Starting {', '.join(SERVICES)} ...", flush=True)
        for name, arguments in SERVICES.items():
            log = self.installation.logs / f"{name}.log"
            if log.exists():
                log.replace(log.with_suffix(".log.1"))
            with log.open("wb") as output:
                children[name] = subprocess.Popen(
                    ["airflow", *arguments],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=ROOT,
                    start_new_session=True,
                )
            process = processes.find(children[name].pid)
            if process is not None:
                identities[name] = asdict(process) | {"session": process.pid}
            self._started = {
                "boot": processes.boot_id(),
                "port": self.installation.port,
                "services": identities,
            }
            part = self._record.with_suffix(".part")
            part.write_text(json.dumps(self._started), encoding="utf-8")
            part.replace(self._record)
        try:
            self._wait_until_healthy(children, since=began)
        except BaseException:
            self._end()
            raise

    def _wait_until_healthy(
        self, children: dict[str, subprocess.Popen[bytes]], *, since: float
    ) -> None:
        deadline = time.monotonic() + START_SECONDS
        health: dict[str, str] = {}
        while time.monotonic() < deadline:
            for name, child in children.items():
                if child.poll() is not None:
                    log = self.installation.logs / f"{name}.log"
                    raise JobError(
                        f"{name} ended with code {child.returncode}:\n{_tail(log)}",
                        f"See {_shown(log)}.",
                    )
            health = self._health(since=since)
            if health and set(health.values()) == {"healthy"}:
                return
            time.sleep(0.3)
        raise JobError(
            f"Airflow did not get healthy in {START_SECONDS} s: {health or 'no answer'}.",
            f"See the logs in {_shown(self.installation.logs)}/; is this machine very busy?",
        )

    def _health(self, *, since: float = 0.0) -> dict[str, str]:
        """Each component's state; a heartbeat from before `since` is another process's."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self.installation.url}/api/v2/monitor/health", timeout=5) as answer:
                parts = json.load(answer)
        except (OSError, ValueError):
            return {}
        states = {}
        for name, part in parts.items():
            states[name] = str(part["status"])
            beat = part.get(f"latest_{name}_heartbeat")
            if name != "metadatabase" and _seconds(beat) < since:
                states[name] = "starting"
        return states


def _port() -> int:
    text = os.environ.get("PORT") or "8080"
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise JobError(f"PORT is {text!r}: it is no port.", "Give a number from 1 to 65535.")
    return int(text)


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise JobError(
                f"PORT is {port}: {HOST}:{port} cannot be used ({error.strerror}).",
                f"Choose another one, such as PORT={port + 1}, or end the program that has it.",
            ) from error


def _check_environments() -> None:
    for program in (".venv/airflow/bin/airflow", ".venv/jobs/bin/spark-submit"):
        if not (ROOT / program).exists():
            raise JobError(f"{program} is not there.", "Make the environments: make setup")


def _seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _tail(log: Path, lines: int = 15) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


if __name__ == "__main__":
    sys.exit(main())
