"""A DAG run and its tasks as Airflow knows them.

The API server answers for its own database, as Airflow's own routes do; nothing is written there.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import select

from trainyard.layout import run_directory, safe_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.orm import Session

UNFINISHED = {None, "none", "scheduled", "queued", "running", "restarting", "deferred"}
"""States of a task, and of a run, in which there may be more to see soon."""

WAITING = {"up_for_retry", "up_for_reschedule"}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task instance.

    Attributes:
        generation: what a clear changes and a retry does not.
        weight: grows with what depends on the task.
        attempt: number of its try, from 1; 0 before the first.
    """

    task_id: str
    map_index: int
    state: str | None
    operator: str
    start: float | None
    end: float | None
    attempt: int
    generation: int
    weight: int

    @property
    def is_over(self) -> bool:
        """Whether it will not change by itself."""
        return self.state not in UNFINISHED | WAITING


@dataclass(frozen=True, kw_only=True)
class Run:
    """A DAG run and its tasks, in the order in which they ran or will run."""

    dag_id: str
    run_id: str
    state: str
    start: float | None
    end: float | None
    note: str | None
    tasks: tuple[Task, ...]

    def directory(self, root: str, task: Task) -> str:
        """Where a task works that is a job of Trainyard's."""
        return run_directory(
            root,
            dag_id=self.dag_id,
            run_id=self.run_id,
            task_id=task.task_id,
            map_index=task.map_index,
            generation=task.generation,
        )

    def task(self, task_id: str, map_index: int) -> Task | None:
        """One of its tasks."""
        found = (t for t in self.tasks if (t.task_id, t.map_index) == (task_id, map_index))
        return next(found, None)


def find_run(session: Session, dag_id: str, run_id: str) -> Run | None:
    """A run, or None where there is none."""
    found = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    if found is None:
        return None
    columns = (
        TaskInstance.task_id,
        TaskInstance.map_index,
        TaskInstance.state,
        TaskInstance.operator,
        TaskInstance.start_date,
        TaskInstance.end_date,
        TaskInstance.try_number,
        TaskInstance.max_tries,
        TaskInstance.priority_weight,
    )
    rows = session.execute(
        select(*columns).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    )
    return Run(
        dag_id=dag_id,
        run_id=run_id,
        state=str(found.state),
        start=_seconds(found.start_date),
        end=_seconds(found.end_date),
        note=found.note,
        tasks=tuple(sorted((_task(*row) for row in rows), key=_order)),
    )


def run_ids(session: Session, dag_ids: Collection[str]) -> dict[tuple[str, str], tuple[str, str]]:
    """The runs of some DAGs, by the names of their directories, the newest ones first."""
    known = select(DagRun.dag_id, DagRun.run_id).where(DagRun.dag_id.in_(dag_ids))
    rows = session.execute(known.order_by(DagRun.run_after.desc()))
    return {(safe_name(dag), safe_name(run)): (dag, run) for dag, run in rows}


def _task(
    task_id: str,
    map_index: int,
    state: Any,
    operator: str | None,
    start: datetime | None,
    end: datetime | None,
    attempt: int,
    generation: int,
    weight: int | None,
) -> Task:
    return Task(
        task_id=task_id,
        map_index=map_index,
        state=None if state is None else str(state),
        operator=operator or "",
        start=_seconds(start),
        end=_seconds(end),
        attempt=attempt or 0,
        generation=generation or 0,
        weight=weight or 0,
    )


def _order(task: Task) -> tuple[bool, float, int, str, int]:
    started = task.start is not None
    return (not started, task.start or 0.0, -task.weight, task.task_id, task.map_index)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
