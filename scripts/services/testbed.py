"""An Airflow with a standalone cluster on this machine, any process of which can be killed.

For tests and benchmarks: the processes are the real ones, and so is signal 9.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services import processes
from services.api import Api
from services.installation import HOST, MARK, ROOT, SERVICES, USER, Installation
from services.processes import Process
from services.standalone import Standalone, free_port

sys.path.insert(0, str(ROOT / "jobs"))
from trainyard.layout import safe_name

_DEADLY_SOON = {
    # Airflow waits minutes before it holds a process for dead; here it waits seconds.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "12",
}
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_DRIVER = "org.apache.spark.deploy.worker.DriverWrapper"
_TASK = "airflow worker -- "
"""What the processes of a task call themselves: LocalExecutor's, and the one that runs it."""


class Testbed:
    """Airflow's services, a master that recovers, and two workers; `with` starts and ends them.

    The connection `spark_default` is the master in cluster mode, `spark_client` in client mode.

    Args:
        home: directory of all that they write.
        dags: the folder of DAGs.
    """

    __test__ = False  # pytest takes a name like this for a test

    def __init__(self, home: Path, dags: Path) -> None:
        self.cluster = Standalone(home / "cluster", recover=True)
        client = {"conn_type": "spark", "host": self.cluster.url}
        self.place = Installation(home=home / "installation", port=free_port())
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "MLFLOW"))}
        self._environment = {
            **kept,
            "TRAINYARD_HOME": str(self.place.home),
            "PORT": str(self.place.port),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW_CONN_SPARK_DEFAULT": self.cluster.connection(),
            "AIRFLOW_CONN_SPARK_CLIENT": json.dumps(client),
            "SPARK_LOCAL_IP": HOST,
            **_DEADLY_SOON,
        }
        self._sessions: dict[str, int] = {}
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        try:
            self._local("up")
            record = self.place.home / "run" / "services.json"
            services = json.loads(record.read_text(encoding="utf-8"))["services"]
            self._sessions = {name: service["session"] for name, service in services.items()}
            self.api = Api(self.place.url, USER, self.place.password())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._local("down")
            for child in self._children:
                child.wait(timeout=10)
        finally:
            self.cluster.stop()

    def service(self, name: str) -> list[Process]:
        """The processes of a service: the scheduler's are those of the tasks too."""
        return [p for p in processes.running() if p.session == self._sessions[name]]

    def start_service(self, name: str) -> list[Process]:
        """Start a service that was killed, or one more of it, and return its first process."""
        log = self.place.logs / f"{name}.{len(self._children)}.log"
        environment = self.place.environment(self._environment)
        with log.open("wb") as output:
            child = subprocess.Popen(
                ["airflow", *SERVICES[name]],
                env={**environment, MARK: str(self.place.home)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,
            )
        self._children.append(child)
        self._sessions[name] = child.pid
        return [p for p in [processes.find(child.pid)] if p]

    def tasks(self) -> list[Process]:
        """The processes that run tasks now: a worker of LocalExecutor, and its child, of each."""
        return [p for p in self.service("scheduler") if _runs_a_task(processes.command(p))]

    def executors(self) -> list[Process]:
        """The JVMs of Spark's executors."""
        return [p for p in self.cluster.jobs() if _EXECUTOR in processes.command(p)]

    def driver_jvms(self) -> list[Process]:
        """The JVMs of drivers, one each."""
        return [p for p in self.cluster.jobs() if _DRIVER in processes.command(p)]

    def driver_pythons(self) -> list[Process]:
        """The Python processes of drivers, one each."""
        return [p for p in self.cluster.jobs() if _is_program(processes.command(p))]

    def run_dirs(self, dag_id: str, run_id: str, task_id: str) -> list[Path]:
        """The run directories of a task, one for each of its generations."""
        return sorted(self.place.home.glob(f"store/{dag_id}/{safe_name(run_id)}/{task_id}/g*"))

    def leavings(self) -> dict[str, Any]:
        """What runs hold: slots, cores, drivers, processes, records of drivers; empty when idle."""
        pool = self.api.get("pools", "default_pool")
        state = self.cluster.state()
        found = {
            "slots": sum(pool[f"{kind}_slots"] for kind in ("running", "queued", "deferred")),
            "cores": state["coresused"],
            "drivers": [driver["id"] for driver in state["activedrivers"]],
            "applications": [app["id"] for app in state["activeapps"]],
            "processes": [process.pid for process in self.cluster.jobs()],
            "records": [p.name for p in self.place.home.glob("store/drivers/*.json")],
        }
        return {name: value for name, value in found.items() if value}

    def is_idle(self) -> bool:
        """Whether no run holds anything."""
        return not self.leavings()

    def _local(self, command: str) -> None:
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "local.py"), command],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"local.py {command}: {done.stdout}{done.stderr}")


def wait_for(condition: Callable[[], Any], seconds: float, every: float = 0.1) -> Any:
    """Wait until a condition is true, and return what it was.

    Raises:
        TimeoutError: it does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(every)
    return found


def _runs_a_task(command: list[str]) -> bool:
    return bool(command) and command[0].startswith(_TASK) and "<idle>" not in command[0]


def _is_program(command: list[str]) -> bool:
    """Whether it is the Python of a job; its JVM has the same arguments."""
    is_python = bool(command) and Path(command[0]).name.startswith("python")
    return is_python and any(word.startswith("--run-dir=") for word in command)
