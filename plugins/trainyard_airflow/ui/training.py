"""The state of a run: its stages, what each has done, why it failed, and what came of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trainyard.layout import FAILURE, RESULT, join
from trainyard_airflow import masking
from trainyard_airflow.ui import report
from trainyard_airflow.ui.events import Follower
from trainyard_airflow.ui.reading import read_object
from trainyard_airflow.ui.runs import UNFINISHED, Run, Task
from trainyard_airflow.ui.told import Told

_log = logging.getLogger(__name__)

_TRAINING = ("train_horovod", "train_xgboost", "tune")
BEST = "best_"
"""Begins the name of a search's curve that tells the best value so far."""

_CLOCKS = 60.0
"""Seconds by which a driver's clock may go after Airflow's."""

_SHOWN = (
    *("job", "rows", "metrics", "model", "task", "champion", "reused", "fingerprints"),
    *("best", "trials"),
)
"""Of a result; its settings are shown where they are asked for."""

_MAPPINGS = ("rows", "metrics", "model", "champion", "best", "trials", "settings")


class UnfinishedError(Exception):
    """There is no result yet: a cache must not keep that."""


@lru_cache(maxsize=256)
def _result(run_dir: str) -> dict[str, Any]:
    result = read_object(join(run_dir, RESULT))
    if result is None:
        raise UnfinishedError
    if not isinstance(result.get("job"), str) or not all(
        isinstance(result.get(name, {}), dict | None) for name in _MAPPINGS
    ):
        _log.warning("What lies in %s is no result of a job.", run_dir)
        raise UnfinishedError
    return result


def result_of(run_dir: str) -> dict[str, Any] | None:
    """The result of a job, which never changes; None before, and where it is damaged."""
    try:
        return _result(run_dir)
    except UnfinishedError:
        return None


def is_training(result: Mapping[str, Any] | None, told: Told | None) -> bool:
    """Whether a job has curves."""
    if told is not None and told.curves:
        return True
    return result is not None and result["job"] in _TRAINING


def state(run: Run, root: str, follower: Follower) -> dict[str, Any]:
    """All that the page of a run shows besides its curves and its report."""
    stages = [stage(run, task, root, follower) for task in run.tasks]
    evaluated = [(t, s) for t, s in zip(run.tasks, stages, strict=True) if s["job"] == "evaluate"]
    return {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "state": run.state,
        "is_over": run.state not in UNFINISHED and all(task.is_over for task in run.tasks),
        "start": run.start,
        "end": run.end,
        "note": masking.mask(run.note) if run.note else None,
        "now": time.time(),
        "stages": stages,
        "evaluation": _headline(run.directory(root, evaluated[-1][0]), evaluated[-1][1])
        if evaluated
        else None,
    }


def stage(run: Run, task: Task, root: str, follower: Follower) -> dict[str, Any]:
    """A task: when it ran, how far it is, and what came of it."""
    run_dir = run.directory(root, task)
    has_begun = task.attempt > 0
    result = result_of(run_dir) if has_begun else None
    told = None
    if has_begun and (result is None or result["job"] in _TRAINING):
        told = _told(run_dir, follower)
    running = told if result is None and not task.is_over else None
    return {
        "task_id": task.task_id,
        "map_index": task.map_index,
        "state": task.state,
        "operator": task.operator,
        "start": task.start,
        "end": task.end,
        "attempt": task.attempt,
        "job": result["job"] if result else None,
        "has_curves": is_training(result, told),
        "steps": told.last if told is not None else 0,
        "progress": progress(running) if running is not None else [],
        "notes": notes(running) if running is not None else [],
        "spark": running.spark if running is not None else None,
        "failure": None if result else failure(run_dir, task),
        "result": _shown(run_dir, result) if result else None,
        "run_dir": run_dir if result or (told is not None and told.seen) else None,
    }


def notes(told: Told) -> list[dict[str, Any]]:
    """The last notes of a job."""
    return [{**note, "text": masking.mask(note["text"])} for note in list(told.notes)[-3:]]


def progress(told: Told) -> list[dict[str, Any]]:
    """How far each stage of a job is, the latest one last."""
    stages = sorted(told.progress.values(), key=lambda stage: stage.time)
    return [stage.to_mapping() for stage in stages]


def failure(run_dir: str, task: Task) -> dict[str, Any] | None:
    """Why a task failed, in its job's own words; None where it has not, or said nothing."""
    if task.state not in ("failed", "up_for_retry"):
        return None
    record = read_object(join(run_dir, FAILURE))
    if record is None:
        return None
    try:
        if float(record["time"]) < (task.start or 0.0) - _CLOCKS:
            return None
        return {
            "cause": masking.mask(str(record["cause"])),
            "fix": masking.mask(str(record["fix"])),
            "permanent": bool(record["permanent"]),
            "time": float(record["time"]),
        }
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        _log.warning("What lies in %s is no failure of a job: %r", run_dir, error)
        return None


def curves(run_dir: str, follower: Follower, cursor: str) -> dict[str, Any]:
    """The curves of a training since a cursor; see `Told.new_since`."""
    told = _told(run_dir, follower) or Told()
    result = result_of(run_dir)
    return {
        **told.new_since(cursor),
        "unit": _unit(told, result),
        "best": _best(told, result),
        "resumed": told.resumed(),
        "ranks": told.ranks,
        "is_partial": told.is_sample,
        "is_damaged": told.is_damaged or told.is_behind,
    }


def _told(run_dir: str, follower: Follower) -> Told | None:
    try:
        return follower.told(run_dir)
    except OSError as error:
        _log.warning("The events of %s cannot be read: %s", run_dir, error)
        return None


def _best(told: Told, result: Mapping[str, Any] | None) -> int | None:
    """The step that is kept, or would be if the training ended now."""
    metrics = (result or {}).get("metrics") or {}
    for name in ("best_epoch", "best_round"):
        if isinstance(metrics.get(name), int):
            return int(metrics[name])
    for name, curve in list(told.curves.items()):  # another request may add one meanwhile
        numbers = [value for value in curve if value == value]
        if name.startswith(BEST) and numbers:
            return curve.index(numbers[-1]) + 1
    # As a training decides by it.
    for name in ("validation_loss", "loss"):
        if name in told.curves:
            curve = told.curves[name]
            numbers = [value for value in curve if value == value]
            return curve.index(min(numbers)) + 1 if numbers else None
    return None


def _unit(told: Told, result: Mapping[str, Any] | None) -> str:
    for stage in ("train", "tune"):
        if stage in told.progress:
            return told.progress[stage].unit
    job = (result or {}).get("job")
    return {"train_xgboost": "round", "tune": "trial"}.get(str(job), "epoch")


def _shown(run_dir: str, result: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: result[name] for name in _SHOWN if name in result}
    if result["job"] == "evaluate":
        shown["main"] = report.main_metric(result, report.verdict(run_dir))
    return {**shown, "started": result.get("started"), "finished": result.get("finished")}


def _headline(run_dir: str, shown: Mapping[str, Any]) -> dict[str, Any]:
    """The one number of a run, and whether its model serves."""
    result = shown["result"]
    name, champion = result["main"], result.get("champion")
    return {
        "task_id": shown["task_id"],
        "map_index": shown["map_index"],
        "metric": name,
        "value": (result.get("metrics") or {}).get(name),
        "rows": result.get("rows"),
        "model": result.get("model"),
        "champion": champion
        and {
            "version": champion.get("version"),
            "value": (champion.get("metrics") or {}).get(name),
        },
        "verdict": report.verdict(run_dir),
    }
