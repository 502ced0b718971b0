"""
# end_lost_drivers: no driver without a task

Ends drivers on a standalone cluster whose task is gone. A mark, a clear or a time-out ends a task's
driver within seconds, by the task itself or by the triggerer; this is for the nights on which
neither lived to do so.

| task | what it does | its result |
|---|---|---|
| `end` | asks for the task of every driver that the store knows, ends the rest | XCom |

**Never ended** is a driver whose task waits for it, retries or is younger than a minute, and what
Trainyard did not submit.

**It is paused** until you switch it on; it is of use where a connection has the deploy mode
`cluster`. Try `dry_run` first: the task's log lists what would be ended.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param

from trainyard_airflow.operators.reap import EndLostDriversOperator
from trainyard_airflow.params import param

with DAG(
    dag_id="end_lost_drivers",
    doc_md=__doc__,
    description="Every ten minutes: end drivers on the cluster whose task is gone.",
    schedule="*/10 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    tags=["cluster"],
    default_args={
        "owner": "trainyard",
        "retries": 1,
        "retry_delay": timedelta(seconds=30),
        "execution_timeout": timedelta(minutes=10),
    },
    params={
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            section="Drivers",
            description="List in the log what would be ended, and end nothing.",
        ),
    },
):
    EndLostDriversOperator(task_id="end", only_list=param("dry_run"))
