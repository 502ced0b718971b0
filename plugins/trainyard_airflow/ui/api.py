"""The data of the pages, as JSON; every route asks Airflow's auth manager first."""

from __future__ import annotations

import json
from typing import Annotated, Any

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Depends, HTTPException, Query, Response
from starlette.responses import JSONResponse

from trainyard.layout import REPORT, join
from trainyard.rundir import finite
from trainyard_airflow import settings
from trainyard_airflow.ui import models, report, runs, training
from trainyard_airflow.ui.access import Readable, ReadableDep, may_read_run
from trainyard_airflow.ui.events import Follower
from trainyard_airflow.ui.models import Version
from trainyard_airflow.ui.reading import read_bytes

router = APIRouter(prefix="/api")
_of_run = APIRouter(prefix="/runs/{dag_id}/{run_id}", dependencies=[Depends(may_read_run)])

_follower = Follower()

_NO_DIFFERENCE = {"run_dir", "dataset", "datasets"}
"""Settings in which any two versions differ, which says nothing."""


class Json(JSONResponse):
    """Plain JSON whatever it is made of: no NaN, and half characters as escapes."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(finite(content), allow_nan=False, separators=(",", ":")).encode()


@_of_run.get("")
def run_state(dag_id: str, run_id: str, session: SessionDep) -> Response:
    """A run: its stages, progress, failures, and what came of it."""
    run = _run(session, dag_id, run_id)
    return Json(training.state(run, settings.store_root(), _follower))


@_of_run.get("/tasks/{task_id}/{map_index}")
def task_state(
    dag_id: str, run_id: str, task_id: str, map_index: int, session: SessionDep
) -> Response:
    """One task of a run, as in `run_state`."""
    run = _run(session, dag_id, run_id)
    task = _task(run, task_id, map_index)
    shown = training.stage(run, task, settings.store_root(), _follower)
    return Json({**shown, "is_over": task.is_over, "run_state": run.state})


@_of_run.get("/tasks/{task_id}/{map_index}/curves")
def task_curves(
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: int,
    session: SessionDep,
    cursor: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """The curves of a training task: all, or what is new since the cursor of an earlier answer."""
    directory = _directory(session, dag_id, run_id, task_id, map_index)
    return Json(training.curves(directory, _follower, cursor))


@_of_run.get("/tasks/{task_id}/{map_index}/report")
def task_report(
    dag_id: str, run_id: str, task_id: str, map_index: int, session: SessionDep
) -> Response:
    """What an evaluation found, or the features that trees go by, and which pictures there are."""
    directory = _directory(session, dag_id, run_id, task_id, map_index)
    return Json(
        {
            "evaluation": report.evaluation(directory),
            "importances": report.importances(directory),
            "search": report.search(directory),
            "pictures": report.pictures(directory),
        }
    )


@_of_run.get("/tasks/{task_id}/{map_index}/pictures/{name}")
def task_picture(
    dag_id: str, run_id: str, task_id: str, map_index: int, name: str, session: SessionDep
) -> Response:
    """One of those pictures."""
    directory = _directory(session, dag_id, run_id, task_id, map_index)
    if name not in report.pictures(directory):
        raise HTTPException(404, "There is no such picture.")
    if (picture := read_bytes(join(directory, REPORT, name))) is None:
        raise HTTPException(404, "That picture cannot be read.")
    return Response(picture, media_type="image/png")


router.include_router(_of_run)


@router.get("/models")
def all_models(readable: ReadableDep) -> Response:
    """Every model of which the user may see a version."""
    shown = []
    for name, versions in models.all_versions().items():
        seen = _visible(versions, readable)
        if seen:
            shown.append({"name": name, "versions": [version.to_mapping() for version in seen]})
    return Json({"models": sorted(shown, key=lambda model: model["name"])})


@router.get("/models/{name}")
def one_model(name: str, readable: ReadableDep, session: SessionDep) -> Response:
    """A model's versions, and the run that made each."""
    seen = _visible(models.model_versions(name), readable)
    if not seen:
        raise HTTPException(404, "There is no such model.")
    made = _makers(session, readable, seen)
    versions = [{**one.to_mapping(), "made_by": made[one.version]} for one in seen]
    return Json({"name": name, "versions": versions})


@router.get("/models/{name}/versions/{version}")
def one_version(name: str, version: str, readable: ReadableDep, session: SessionDep) -> Response:
    """A version: its parameters, its metrics, its curves, and where it comes from and goes to."""
    seen = _visible(models.model_versions(name), readable)
    return Json(_details(session, readable, _pick(seen, version)))


@router.get("/models/{name}/compare")
def compare(name: str, a: str, b: str, readable: ReadableDep, session: SessionDep) -> Response:
    """Two versions: both, and the parameters in which they differ."""
    seen = _visible(models.model_versions(name), readable)
    one, other = _pick(seen, a), _pick(seen, b)
    differing = models.differing(one.params, other.params)
    return Json(
        {
            "a": _details(session, readable, one),
            "b": _details(session, readable, other),
            "differing": [row for row in differing if row["name"] not in _NO_DIFFERENCE],
        }
    )


def _run(session: SessionDep, dag_id: str, run_id: str) -> runs.Run:
    run = runs.find_run(session, dag_id, run_id)
    if run is None:
        raise HTTPException(404, "There is no such run.")
    return run


def _task(run: runs.Run, task_id: str, map_index: int) -> runs.Task:
    task = run.task(task_id, map_index)
    if task is None:
        raise HTTPException(404, "There is no such task in this run.")
    return task


def _directory(session: SessionDep, dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    run = _run(session, dag_id, run_id)
    return run.directory(settings.store_root(), _task(run, task_id, map_index))


def _visible(versions: list[Version], readable: Readable) -> list[Version]:
    return [version for version in versions if readable.sees(version.dag_directory)]


def _pick(versions: list[Version], wanted: str) -> Version:
    for version in versions:
        if version.version == wanted:
            return version
    raise HTTPException(404, "There is no such version of this model.")


def _makers(
    session: SessionDep, readable: Readable, versions: list[Version]
) -> dict[str, dict[str, str] | None]:
    """The DAG and the run that made each version, by its number; None where it is not known."""
    dags = {readable.dag_of(version.dag_directory) for version in versions}
    known = runs.run_ids(session, {dag for dag in dags if dag is not None})
    return {version.version: _linked(known, version.made_in) for version in versions}


def _linked(
    known: dict[tuple[str, str], tuple[str, str]], made_in: tuple[str, str] | None
) -> dict[str, str] | None:
    found = known.get(made_in) if made_in else None
    return {"dag_id": found[0], "run_id": found[1]} if found else None


def _details(session: SessionDep, readable: Readable, version: Version) -> dict[str, Any]:
    dag = readable.dag_of(version.dag_directory)
    known = runs.run_ids(session, {dag} if dag else set())
    newest = [directory for _, directory in list(known)[: models.MOST_RUNS]]
    shown = models.details(version, newest)
    shown["made_by"] = _linked(known, version.made_in)
    for used in shown["predictions"]:
        used["run"] = _linked(known, (version.dag_directory or "", used.pop("directory")))
    curves = training.curves(version.run_dir, _follower, "") if version.run_dir else None
    return {**shown, "curves": curves}
