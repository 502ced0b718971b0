"""Fails a run whose pool is not there, where the scheduler would let it wait for ever.

Airflow's scheduler calls this when it starts a run. It is the one place of Trainyard that looks
into the metadata database, by the session that the scheduler has open for the run itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from trainyard_airflow import settings
from trainyard_airflow.pools import PROMOTION_POOL

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

_log = logging.getLogger(__name__)

MISSING = (
    f"cause: the Airflow pool {PROMOTION_POOL!r} does not exist, so that this run's promotion would"
    f" wait for ever. fix: Make it: airflow pools set {PROMOTION_POOL} 1 'one promotion at a time'"
)


def missing_jobs_pool(pool: str) -> str:
    """What a run is told whose jobs' pool is missing."""
    return (
        f"cause: the Airflow pool {pool!r} of the option 'pool' of [trainyard] does not exist, so"
        " that this run's jobs would wait for ever. fix: Make it, with a slot for each job that the"
        f" cluster has room for: airflow pools set --include-deferred {pool} 2 'jobs on Spark'"
    )


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Fail the run, and say why in its note and the scheduler's log, if the pool is missing."""
    from airflow.models.pool import Pool
    from airflow.utils.state import DagRunState
    from sqlalchemy.orm import object_session

    dag, session = dag_run.dag, object_session(dag_run)
    if dag is None or session is None:
        return
    jobs_pool = settings.pool()
    ours = {jobs_pool: missing_jobs_pool(jobs_pool), PROMOTION_POOL: MISSING}
    for pool in {task.pool for task in dag.tasks} & ours.keys():
        if Pool.get_pool(pool, session=session) is None:
            _log.error("%s %s: %s", dag_run.dag_id, dag_run.run_id, ours[pool])
            dag_run.note = ours[pool]
            dag_run.set_state(DagRunState.FAILED)
            return
