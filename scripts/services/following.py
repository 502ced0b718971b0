"""A DAG run as its reader sees it: tasks that start and end, epochs that pass, why one failed."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.api import Api, ApiError
from services.installation import ROOT, Installation

sys.path.insert(0, str(ROOT / "jobs"))
from trainyard import claims, layout, rundir, store

ENDED = ("success", "failed", "upstream_failed", "skipped", "removed")
POLL_SECONDS = 0.5


class Follower:
    """Follows one run through the API and its run directories, and prints what changes.

    Args:
        api: a session with Airflow.
        place: the installation that runs it.
        dag_id: the DAG.
        run_id: the run.
    """

    def __init__(self, api: Api, place: Installation, dag_id: str, run_id: str) -> None:
        self._api = api
        self._place = place
        self._run = ("dags", dag_id, "dagRuns", run_id)
        self._names = (dag_id, run_id)
        environment = place.environment(os.environ)
        self._store = environment["AIRFLOW__TRAINYARD__STORE"]
        self._states: dict[tuple[str, int], str] = {}
        self._seen: dict[str, dict[str, int]] = {}
        self._stages: dict[str, str] = {}
        self._began = time.monotonic()

    def follow(self) -> str:
        """Print what happens until the run ends; answer with its state."""
        while True:
            state = str(self._api.get(*self._run)["state"])
            for task in self._tasks():
                self._show(task)
            if state in ("success", "failed"):
                return state
            time.sleep(POLL_SECONDS)

    def wait_for_drivers(self, *, seconds: float) -> None:
        """Wait until no Spark driver of the run is alive, at most so long."""
        directories = [self._directory(task["task_id"]) for task in self._tasks()]
        deadline = time.monotonic() + seconds
        while any(map(claims.live_claim, directories)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def results(self) -> dict[str, Any]:
        """What each task returned."""
        results = {}
        for task in self._tasks():
            entry = (*self._run, "taskInstances", task["task_id"], "xcomEntries", "return_value")
            try:
                value = self._api.get(*entry, deserialize="true")["value"]
            except ApiError as error:
                if error.status != 404:
                    raise
                continue
            results[task["task_id"]] = json.loads(value) if isinstance(value, str) else value
        return results

    def seconds(self) -> dict[str, float]:
        """How long each task took."""
        return {task["task_id"]: task["duration"] or 0.0 for task in self._tasks()}

    def failures(self) -> str:
        """Which tasks failed, why, and where to read more."""
        lines = []
        for task in self._tasks():
            if task["state"] == "failed":
                lines.append(f"\nTask {task['task_id']} failed.")
                lines.append(f"  {self._cause(task) or 'Its log says why.'}")
                lines.append(f"  log: {self._log_file(task)}")
        return "\n".join(lines)

    def _cause(self, task: Mapping[str, Any]) -> str:
        """The line `cause: ... fix: ...` in a task's log, or the error that it ended with."""
        log = (*self._run, "taskInstances", task["task_id"], "logs", str(task["try_number"]))
        found = ""
        for line in self._api.get(*log)["content"]:
            for error in line.get("error_detail") or [] if isinstance(line, dict) else []:
                found = f"{error['exc_type']}: {error['exc_value']}"
                if error["exc_value"].startswith("cause: "):
                    return str(error["exc_value"])
        return found

    def _log_file(self, task: Mapping[str, Any]) -> Path:
        dag_id, run_id = self._names
        folder = f"dag_id={dag_id}/run_id={run_id}/task_id={task['task_id']}"
        return self._place.airflow_home / "logs" / folder / f"attempt={task['try_number']}.log"

    def _tasks(self) -> list[dict[str, Any]]:
        tasks = self._api.get(*self._run, "taskInstances", limit=100)["task_instances"]
        return sorted(tasks, key=lambda task: task["start_date"] or "~")

    def _show(self, task: Mapping[str, Any]) -> None:
        name, state = task["task_id"], task["state"] or "waits"
        if state != "waits":
            self._show_events(name)
        before, self._states[name, 0] = self._states.get((name, 0), "waits"), state
        if state == before:
            return
        if state == "running":
            attempt = f" (attempt {task['try_number']})" if task["try_number"] > 1 else ""
            self._say(f"{name} starts{attempt}")
        elif state in ENDED or state == "up_for_retry":
            took = f" after {task['duration']:.0f} s" if task["duration"] else ""
            self._say(f"{name}: {_words(state)}{took}")
            if state in ("failed", "up_for_retry") and (cause := self._cause(task)):
                self._say(f"    {cause}")

    def _show_events(self, task: str) -> None:
        directory = self._directory(task)
        for event in rundir.read_events(directory, self._seen.setdefault(directory, {})):
            if event["kind"] == "metric":
                values = event["values"].items()
                figures = [f"{_words(n)} {_figure(v)}" for n, v in values if v is not None]
                self._say(f"    epoch {event['step']:>2}  {'  '.join(figures)}")
            elif event["kind"] == "note":
                self._say(f"    {event['text']}")

    def _directory(self, task: str) -> str:
        """The task's run directory: that of its last generation."""
        dag_id, run_id = self._names
        first = layout.run_directory(self._store, dag_id=dag_id, run_id=run_id, task_id=task)
        parent = first.rpartition("/")[0]
        generations = [int(name[1:]) for name in store.list_names(parent) if name[1:].isdigit()]
        return layout.join(parent, f"g{max(generations, default=0)}")

    def _say(self, text: str) -> None:
        print(f"{clock(time.monotonic() - self._began):>6}  {text}", flush=True)


def clock(seconds: float) -> str:
    """A duration as minutes and seconds."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.4f}"
