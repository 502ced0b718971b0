"""Removes runs, checkpoints and registered versions that nothing needs any more.

What a run is: a directory `<store>/<dag>/<run>` whose tasks' generations hold claims or results. It
goes when it is older than `keep_days`, or when `keep_runs` of its DAG are newer. Never removed are

- a run in which a driver lives, or that was active in the last day;
- the run that made a version with an alias, such as the champion, or the champion before it;
- a run whose dataset or model a kept run was made from, however long ago;
- anything that is not of the form above, beside a task's generations too, or that a link leads out
  of the store.

`plan` decides and changes nothing; `Plan.apply` removes.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainyard import lineage, rundir, store
from trainyard.claims import last_claim, live_claim
from trainyard.errors import JobError
from trainyard.layout import CHECKPOINTS, CLAIMS, RESULT, TICKETS, join

DAY = 24 * 3600.0

_ACTIVE_SECONDS = DAY
"""A run may be between two tasks, with no driver alive."""


@dataclass(frozen=True, kw_only=True)
class Keep:
    """What to keep.

    Attributes:
        days: age in days above which a run goes.
        runs: runs of each DAG above which the older ones go.
        checkpoint_days: age in days above which the checkpoints of finished trainings go.
    """

    days: float
    runs: int
    checkpoint_days: float

    def __post_init__(self) -> None:
        for name, value, least in (
            ("keep_days", self.days, 1),
            ("keep_runs", self.runs, 1),
            ("checkpoint_days", self.checkpoint_days, 1),
        ):
            if not value >= least:
                raise JobError(f"setting {name!r} is {value:g}: it is below {least}.", "Raise it.")


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run in the store.

    Attributes:
        dag: its DAG's directory.
        path: `<dag>/<run>`, relative to the store.
        tasks: directories of its tasks' generations, relative to the store.
        active: when a driver last began or ended there, in seconds since the epoch.
        made_from: runs that hold what it was made from.
        finished: the tasks that have a result.
        searches: MLflow runs of the searches among them.
        trouble: why it stays for good: what in it cannot be read; empty where all can.
    """

    dag: str
    path: str
    tasks: tuple[str, ...]
    active: float
    made_from: frozenset[str]
    finished: frozenset[str]
    searches: frozenset[str]
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to go, and why the rest stays.

    Attributes:
        root: the store.
        runs: runs to remove.
        checkpoints: checkpoint directories to remove, relative to the store.
        versions: registered versions to remove, with the MLflow runs that made them.
        searches: MLflow runs of searches to remove, with those of their trials.
        kept: why each run stays that is old enough to go.
    """

    root: str
    runs: tuple[str, ...]
    checkpoints: tuple[str, ...]
    versions: tuple[lineage.Version, ...]
    searches: tuple[str, ...]
    kept: dict[str, str]

    def lines(self) -> Iterator[str]:
        """The plan for a reader."""
        yield from (f"remove {path}" for path in (*self.runs, *self.checkpoints))
        for version in self.versions:
            yield f"remove models:/{version.name}/{version.version}, MLflow run {version.run_id}"
        yield from (f"remove MLflow run {run_id}, a search" for run_id in self.searches)
        yield from (f"keep   {path}: {reason}" for path, reason in sorted(self.kept.items()))

    def apply(self) -> None:
        """Remove it all: the registry's part first, so that nothing registered lacks its files.

        Raises:
            JobError: the registry does not answer, or a path has become a link.
        """
        for version in self.versions:
            lineage.remove(version, self.root)
        for run_id in self.searches:
            lineage.remove_search(run_id, self.root)
        for path in self.runs:
            for task in _tasks(self.root, path):
                names = [n for n in store.list_names(join(self.root, task)) if n != CLAIMS]
                # The result first, since it says that all is there; the claims last, since by
                # them an interrupted removal is found again.
                for name in sorted(names, key=lambda name: name != RESULT):
                    store.remove(join(self.root, task, name))
                self._remove(task)
            self._remove_empty(path)
        for path in self.checkpoints:
            self._remove(path)

    def _remove_empty(self, path: str) -> None:
        """Remove what is left of a run, unless somebody else has put something there."""
        for task in (f"{path}/{name}" for name in _directories(self.root, path)):
            for generation in (f"{task}/{name}" for name in _directories(self.root, task)):
                # Of a driver that was submitted and never came.
                if _directories(self.root, generation) == [TICKETS]:
                    self._remove(generation)
            if _is_empty(self.root, task):
                self._remove(task)
        if _is_empty(self.root, path):
            self._remove(path)

    def _remove(self, path: str) -> None:
        uri = join(self.root, path)
        if store.within(self.root, uri) is None:
            raise JobError(f"{uri!r} leads out of the store by a link.", "Remove the link.")
        store.remove(uri)


def plan(root: str, keep: Keep, now: float | None = None) -> Plan:
    """Decide what goes.

    Args:
        root: the store.
        keep: what to keep.
        now: seconds since the epoch.

    Raises:
        JobError: the registry, which knows what is in use, does not answer.
    """
    now = time.time() if now is None else now
    versions = lineage.versions()
    used = [version for version in versions if version.why]
    runs = {run.path: run for run in _runs(root)}
    old = _old(list(runs.values()), keep, now)
    kept = {}
    for path in sorted(old):
        if why := _needed(root, runs[path], used, now):
            kept[path] = why
    staying = set(runs) - (old - set(kept))
    reached = list(staying)
    while reached:
        for source in runs[reached.pop()].made_from & (set(runs) - staying):
            kept[source] = "a kept run was made from it"
            staying.add(source)
            reached.append(source)
    going = tuple(sorted(set(runs) - staying))
    return Plan(
        root=root,
        runs=going,
        checkpoints=tuple(_checkpoints(root, [runs[p] for p in sorted(staying)], keep, now, used)),
        versions=tuple(v for v in versions if not v.why and _run_of(root, v) in going),
        searches=tuple(sorted({run_id for path in going for run_id in runs[path].searches})),
        kept=kept,
    )


def _old(runs: list[StoredRun], keep: Keep, now: float) -> set[str]:
    by_dag = defaultdict(list)
    for run in runs:
        by_dag[run.dag].append(run)
    old = set()
    for of_dag in by_dag.values():
        newest_first = sorted(of_dag, key=lambda run: run.active, reverse=True)
        for position, run in enumerate(newest_first):
            if position >= keep.runs or now - run.active > keep.days * DAY:
                old.add(run.path)
    return old


def _needed(root: str, run: StoredRun, used: list[lineage.Version], now: float) -> str | None:
    """Why a run must stay although it is old."""
    if run.trouble:
        return run.trouble
    for version in used:
        if _run_of(root, version) == run.path:
            return f"models:/{version.name}/{version.version} was made there ({version.why})"
    if now - run.active < _ACTIVE_SECONDS:
        return "it was active in the last day"
    for task in run.tasks:
        if claim := live_claim(join(root, task)):
            return f"a driver works in it: process {claim.pid} on {claim.host}"
    return None


def _checkpoints(
    root: str, runs: list[StoredRun], keep: Keep, now: float, used: list[lineage.Version]
) -> Iterator[str]:
    needed = {_run_of(root, version) for version in used}
    for run in runs:
        if run.path in needed or now - run.active <= keep.checkpoint_days * DAY:
            continue
        for task in sorted(run.finished):
            path = join(task, CHECKPOINTS)
            if store.list_names(join(root, path)) and store.within(root, join(root, path)):
                yield path


def _runs(root: str) -> Iterator[StoredRun]:
    for dag in store.list_names(root):
        for name in _directories(root, dag):
            path = f"{dag}/{name}"
            if tasks := _tasks(root, path):
                yield _run(root, dag, path, tasks)


def _run(root: str, dag: str, path: str, tasks: list[str]) -> StoredRun:
    times, sources, finished, trouble = [0.0], set(), set(), ""
    searches = set()
    for task in tasks:
        directory = join(root, task)
        try:
            if claim := last_claim(directory):
                times.append(claim.time)
            if (result := rundir.read_result(directory)) is not None:
                times.append(float(result["finished"]))
                finished.add(task)
                searches |= {result["mlflow_run_id"]} if result.get("job") == "tune" else set()
                sources |= {_run_path(root, text) for text in _texts(result)}
        except (JobError, KeyError, TypeError, ValueError) as error:
            trouble = f"{task} cannot be read: {error}"
    return StoredRun(
        dag=dag,
        path=path,
        tasks=tuple(tasks),
        active=max(times),
        made_from=frozenset(source for source in sources if source and source != path),
        finished=frozenset(finished),
        searches=frozenset(searches),
        trouble=trouble,
    )


def _tasks(root: str, path: str) -> list[str]:
    """The generations of a run's tasks: directories of that name in which a driver was."""
    found = []
    for task in _directories(root, path):
        for generation in _directories(root, f"{path}/{task}"):
            directory = f"{path}/{task}/{generation}"
            if (
                re.fullmatch(r"g\d+", generation)
                and store.within(root, join(root, directory))
                and store.list_names(join(root, directory, CLAIMS))
            ):
                found.append(directory)
    return found


def _directories(root: str, path: str) -> list[str]:
    try:
        return store.list_names(join(root, path))
    except NotADirectoryError:
        return []


def _is_empty(root: str, path: str) -> bool:
    try:
        return store.list_names(join(root, path)) == []
    except NotADirectoryError:
        return False


def _run_of(root: str, version: lineage.Version) -> str | None:
    return _run_path(root, version.run_dir) if version.run_dir else None


def _run_path(root: str, uri: str) -> str | None:
    """`<dag>/<run>` of a path in a run of the store."""
    parts = (store.within(root, uri) or "").split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
