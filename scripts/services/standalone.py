"""A Spark standalone cluster on this machine: a master and workers as real processes.

For tests and benchmarks; `spark-class` of the jobs' environment starts them, as on a real cluster.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services import processes
from services.installation import HOST, ROOT
from services.processes import Process

CLUSTER_MARK = "TRAINYARD_CLUSTER"
"""Variable that names the cluster in the environment of all that it starts, drivers too."""

_START_SECONDS = 60.0


class Standalone:
    """A master with its REST server, and workers; `with` starts and ends them.

    Args:
        home: directory of logs, work directories and the master's recovery state.
        workers: how many there are.
        cores: of each worker.
        memory_mb: of each worker.
        rest: whether the master has a REST server.
        rest_key: key, as base64url, with which a REST request's token must be signed.
        recover: whether a master that starts again knows its drivers and applications.
        environment: more variables for the workers, and so for drivers and executors.
    """

    def __init__(
        self,
        home: Path,
        *,
        workers: int = 2,
        cores: int = 2,
        memory_mb: int = 3072,
        rest: bool = True,
        rest_key: str = "",
        recover: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self._workers = workers
        self._cores = cores
        self._memory_mb = memory_mb
        self._more = dict(environment or {})
        self.port, self.rest_port, self.web_port = (free_port() for _ in range(3))
        options = {
            "spark.master.rest.enabled": str(rest).lower(),
            "spark.master.rest.host": HOST,
            "spark.master.rest.port": str(self.rest_port),
        }
        if rest_key:
            filter_name = "org.apache.spark.ui.JWSFilter"
            options["spark.master.rest.filters"] = filter_name
            options[f"spark.{filter_name}.param.secretKey"] = rest_key
        if recover:
            options["spark.deploy.recoveryMode"] = "FILESYSTEM"
            options["spark.deploy.recoveryDirectory"] = str(home / "recovery")
        self._master_options = options
        self.members: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """The master, as `spark-submit --master` takes it."""
        return f"spark://{HOST}:{self.port}"

    @property
    def rest_url(self) -> str:
        """Address of the REST server."""
        return f"http://{HOST}:{self.rest_port}"

    @property
    def web_url(self) -> str:
        """Address of the master's pages."""
        return f"http://{HOST}:{self.web_port}"

    def connection(self, **fields: Any) -> str:
        """The Airflow connection to it, in cluster mode, as JSON."""
        ports = {"rest-port": self.rest_port, "web-port": self.web_port}
        extra = {"deploy-mode": "cluster", **ports}
        return json.dumps({"conn_type": "spark", "host": self.url, "extra": extra, **fields})

    def __enter__(self) -> Self:
        try:
            self.start_master()
            for number in range(1, self._workers + 1):
                self.start_worker(number)
            self.wait_for_workers(self._workers)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start_master(self) -> None:
        """Start the master, with the ports and the state of the one before."""
        # In a file that only this user reads: the key of the tokens is among them.
        self.home.mkdir(parents=True, exist_ok=True)
        properties = self.home / "master.conf"
        properties.touch(mode=0o600)
        properties.write_text("".join(f"{k} {v}\n" for k, v in self._master_options.items()))
        arguments = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self.web_port)]
        main = ["org.apache.spark.deploy.master.Master", "--properties-file", str(properties)]
        self._start("master", [*main, *arguments])

    def start_worker(self, number: int) -> None:
        """Start a worker."""
        work = self.home / f"work{number}"
        self._start(
            f"worker{number}",
            [
                "org.apache.spark.deploy.worker.Worker",
                *("--host", HOST, "--webui-port", "0", "--work-dir", str(work)),
                *("--cores", str(self._cores), "--memory", f"{self._memory_mb}m"),
                self.url,
            ],
        )

    def kill(self, member: str) -> None:
        """Kill `master` or `worker1` with signal 9, as a machine that fails does."""
        process = self.members.pop(member)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def session(self, member: str) -> list[Process]:
        """A member's process and, of a worker, all the drivers and executors on it."""
        return [p for p in self._all() if p.session == self.members[member].pid]

    def state(self) -> dict[str, Any]:
        """What the master's web API says."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{self.web_url}/json/", timeout=5) as answer:
            return dict(json.load(answer))

    def wait_for_workers(self, count: int, seconds: float = _START_SECONDS) -> None:
        """Wait until the master is alive and so many of its workers are."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                state = self.state()
                if state["status"] == "ALIVE" and state["aliveworkers"] == count:
                    return
            except OSError:
                state = {}
            for name, process in self.members.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended: {self.log(name)[-2000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {count} workers after {seconds:g} s: {state}")
            time.sleep(0.1)

    def log(self, member: str) -> str:
        """What a member has logged."""
        return (self.home / f"{member}.log").read_text(errors="replace")

    def driver_log(self, submission: str, stream: str = "stderr") -> str:
        """What a driver has printed."""
        (path,) = self.home.glob(f"work*/{submission}/{stream}")
        return path.read_text(errors="replace")

    def jobs(self) -> list[Process]:
        """Every process of drivers and executors that runs."""
        members = {process.pid for process in self.members.values()}
        return [p for p in self._all() if p.session not in members or not _is_daemon(p)]

    def stop(self) -> None:
        """End every process of the cluster, drivers and executors too."""
        left = processes.end(self._all, grace=5)
        for process in self.members.values():
            process.wait(timeout=10)
        self.members.clear()
        if left:
            raise RuntimeError(f"processes {[p.pid for p in left]} do not end")

    def _all(self) -> list[Process]:
        home = str(self.home)
        return [p for p in processes.running() if processes.has_variable(p, CLUSTER_MARK, home)]

    def _start(self, name: str, arguments: list[str]) -> None:
        with (self.home / f"{name}.log").open("ab") as log:
            self.members[name] = subprocess.Popen(
                [str(ROOT / ".venv/jobs/bin/spark-class"), *arguments],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        jobs = ROOT / ".venv/jobs"
        kept = {
            name: os.environ[name] for name in ("HOME", "LANG", "JAVA_HOME") if name in os.environ
        }
        (spark_home,) = jobs.glob("lib/python3*/site-packages/pyspark")
        return {
            **kept,
            "PATH": f"{jobs}/bin{os.pathsep}{os.environ['PATH']}",
            "SPARK_HOME": str(spark_home),
            "PYSPARK_PYTHON": f"{jobs}/bin/python",
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            CLUSTER_MARK: str(self.home),
            **self._more,
        }


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_daemon(process: Process) -> bool:
    """Whether it is a master or worker itself, or the shell that becomes one."""
    mains = ("org.apache.spark.deploy.master.", "org.apache.spark.deploy.worker.Worker")
    return any(word.startswith(mains) for word in processes.command(process))
