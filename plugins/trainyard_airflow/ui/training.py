"""The state of a run: its stages, what each has done, why it failed, and what came of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trainyard import rundir
from trainyard.errors import JobError
from trainyard.layout import VERDICT, join
from trainyard_airflow import masking
from trainyard_airflow.ui import report
from trainyard_airflow.ui.events import Follower, Told
from trainyard_airflow.ui.runs import UNFINISHED, Run, Task

_log = logging.getLogger(__name__)

_TRAINING = ("train_horovod", "train_xgboost", "tune")
_CLOCKS = 60.0
"""Seconds by which a driver's clock may go after Airflow's."""

_SHOWN = ("job", "rows", "metrics", "model", "task", "champion", "reused", "fingerprints")
"""Of a result; its settings are shown where they are asked for."""


class UnfinishedError(Exception):
    """There is no result yet: a cache must not keep that."""


@lru_cache(maxsize=256)
def _result(run_dir: str) -> dict[str, Any]:
    result = rundir.read_result(run_dir)
    if result is None:
        raise UnfinishedError
    return result


def result_of(run_dir: str) -> dict[str, Any] | None:
    """The result of a job, which never changes; None before, and where it is damaged."""
    try:
        return _result(run_dir)
    except UnfinishedError:
        return None
    except (JobError, OSError) as error:
        _log.warning("The result in %s cannot be read: %s", run_dir, error)
        return None


def is_training(result: Mapping[str, Any] | None, told: Told | None) -> bool:
    """Whether a job has curves."""
    if told is not None and told.curves:
        return True
    return result is not None and result.get("job") in _TRAINING


def state(run: Run, root: str, follower: Follower) -> dict[str, Any]:
    """All that the page of a run shows besides its curves and its report."""
    stages = [stage(run, task, root, follower) for task in run.tasks]
    evaluated = [(t, s) for t, s in zip(run.tasks, stages, strict=True) if s["job"] == "evaluate"]
    evaluation = None
    if evaluated:
        task, shown = evaluated[-1]
        evaluation = _headline(run.directory(root, task), shown)
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
        "evaluation": evaluation,
    }


def stage(run: Run, task: Task, root: str, follower: Follower) -> dict[str, Any]:
    """A task: when it ran, how far it is, and what came of it."""
    run_dir = run.directory(root, task)
    result = result_of(run_dir)
    told = None
    if result is None or result.get("job") in _TRAINING:
        told = _told(run_dir, follower)
    running = told is not None and not task.is_over and result is None
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
        "progress": progress(told) if running and told is not None else [],
        "notes": list(told.notes)[-3:] if running and told is not None else [],
        "spark": told.spark if running and told is not None else None,
        "failure": None if result else failure(run_dir, task),
        "result": _shown(result) if result else None,
        "run_dir": run_dir if result or (told is not None and told.seen) else None,
    }


def progress(told: Told) -> list[dict[str, Any]]:
    """How far each stage of a job is, the latest one last."""
    stages = sorted(told.progress.values(), key=lambda stage: stage.time)
    return [stage.to_mapping() for stage in stages]


def failure(run_dir: str, task: Task) -> dict[str, Any] | None:
    """Why a task failed, in its job's own words; None where it has not, or said nothing."""
    if task.state not in ("failed", "up_for_retry"):
        return None
    try:
        record = rundir.read_failure(run_dir, after_claim=-1)
    except (OSError, ValueError, KeyError) as error:
        _log.warning("The failure in %s cannot be read: %s", run_dir, error)
        return None
    if record is None or record["time"] < (task.start or 0.0) - _CLOCKS:
        return None
    return {
        "cause": masking.mask(str(record["cause"])),
        "fix": masking.mask(str(record["fix"])),
        "permanent": bool(record["permanent"]),
        "time": record["time"],
    }


def curves(run_dir: str, follower: Follower, cursor: str) -> dict[str, Any]:
    """The curves of a training since a cursor; see `Told.new_since`."""
    told = _told(run_dir, follower) or Told()
    result = result_of(run_dir)
    metrics = (result or {}).get("metrics") or {}
    best = metrics.get("best_epoch") or metrics.get("best_round") or _least(told)
    return {
        **told.new_since(cursor),
        "unit": _unit(told, result),
        "best": best,
        "resumed": told.resumed(),
        "ranks": told.ranks,
        "is_partial": told.is_sample,
        "is_damaged": told.is_damaged,
    }


def _told(run_dir: str, follower: Follower) -> Told | None:
    try:
        return follower.told(run_dir)
    except OSError as error:
        _log.warning("The events of %s cannot be read: %s", run_dir, error)
        return None


def _least(told: Told) -> int | None:
    """The step with the least validation loss so far, or loss, as a training decides by it."""
    for name in ("validation_loss", "loss"):
        if curve := told.curves.get(name):
            numbers = [value for value in curve if value == value]
            return curve.index(min(numbers)) + 1 if numbers else None
    return None


def _unit(told: Told, result: Mapping[str, Any] | None) -> str:
    for stage in ("train", "tune"):
        if stage in told.progress:
            return told.progress[stage].unit
    job = (result or {}).get("job")
    return {"train_xgboost": "round", "tune": "trial"}.get(str(job), "epoch")


def _shown(result: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: result[name] for name in _SHOWN if name in result}
    return {**shown, "started": result.get("started"), "finished": result.get("finished")}


def _headline(run_dir: str, shown: Mapping[str, Any]) -> dict[str, Any]:
    """The one number of a run, and whether its model serves."""
    result = shown["result"]
    name = report.main_metric(result)
    champion = result.get("champion")
    return {
        "task_id": shown["task_id"],
        "map_index": shown["map_index"],
        "metric": name,
        "value": result["metrics"].get(name),
        "rows": result.get("rows"),
        "model": result.get("model"),
        "champion": champion
        and {"version": champion["version"], "value": champion["metrics"].get(name)},
        "verdict": report.read(join(run_dir, "report", VERDICT)),
    }
