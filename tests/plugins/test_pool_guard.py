"""A run whose pool is missing fails and says so; Airflow itself would let it wait for ever."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.listeners.listener import get_listener_manager
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from trainyard_airflow.pool_guard import MISSING, on_dag_run_running
from trainyard_airflow.pools import PROMOTION_POOL
from trainyard_plugin import TrainyardPlugin


@pytest.fixture
def session() -> Iterator[Session]:
    """Airflow's tables of runs and pools in a database of the test's own."""
    engine = create_engine("sqlite://")
    tables = [
        DagRun.metadata.tables[n] for n in ("dag_run", "dag_run_note", "slot_pool", "log_template")
    ]
    DagRun.metadata.create_all(engine, tables=tables)
    with Session(engine) as made:
        yield made
    engine.dispose()


def started(session: Session, *pools: str, tell: bool = True) -> Any:
    """A run that the scheduler has just started, of a DAG whose tasks use the pools."""
    run: Any = DagRun(dag_id="a_dag", run_id="a_run", run_type=DagRunType.MANUAL)
    run.dag = SimpleNamespace(tasks=[SimpleNamespace(pool=pool) for pool in pools])
    session.add(run)
    run.set_state(DagRunState.RUNNING)
    if tell:
        on_dag_run_running(run, "started")
    return run


def test_a_run_without_its_pool_fails_and_says_so(session: Session) -> None:
    session.add(Pool(pool="default_pool", slots=128, include_deferred=False))
    run = started(session, "default_pool", PROMOTION_POOL)
    assert run.state == DagRunState.FAILED
    assert run.note == MISSING
    assert "airflow pools set trainyard_promotion 1" in run.note


def test_a_run_with_its_pool_goes_on(session: Session) -> None:
    session.add(Pool(pool=PROMOTION_POOL, slots=1, include_deferred=False))
    session.add(Pool(pool="default_pool", slots=128, include_deferred=False))
    assert started(session, "default_pool", PROMOTION_POOL).state == DagRunState.RUNNING


def test_another_dag_is_left_alone(session: Session) -> None:
    session.add(Pool(pool="default_pool", slots=128, include_deferred=False))
    run = started(session, "default_pool", "another_pool")
    assert (run.state, run.note) == (DagRunState.RUNNING, None)


def test_the_pool_of_the_jobs_is_guarded_too(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__POOL", "spark_cluster")
    run = started(session, "default_pool", "spark_cluster")
    assert run.state == DagRunState.FAILED
    assert "airflow pools set --include-deferred spark_cluster" in run.note


def test_airflow_calls_it(session: Session) -> None:
    manager: Any = get_listener_manager()
    manager.clear()
    for listener in TrainyardPlugin.listeners:
        manager.add_listener(listener)
    try:
        run = started(session, PROMOTION_POOL, tell=False)
        run.notify_dagrun_state_changed("started")
    finally:
        manager.clear()
    assert run.state == DagRunState.FAILED
