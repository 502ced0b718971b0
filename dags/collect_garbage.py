"""
# collect_garbage: remove what nothing needs any more

Every night it removes runs that are older than `keep_days` or that `keep_runs` runs of the same DAG
are newer than, with the registered versions and MLflow runs that they made, and the checkpoints of
finished trainings older than `checkpoint_days`.

| task | what it does | its result |
|---|---|---|
| `collect` | decides what goes, says why the rest stays, removes | XCom: counts |

**Never removed** are a run in which a driver works or that was active in the last day; what a
version with an alias, such as the champion, was made by and from; the same of the champion before
it, so that a rollback finds it; what a kept run was made from; and what is no run of Trainyard.

**It is paused** until you switch it on. Try `dry_run` first: the task's log lists what would go.
`make gc` does the same once, from a shell.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param

from trainyard_airflow.operators.retention import CollectGarbageOperator
from trainyard_airflow.params import param

with DAG(
    dag_id="collect_garbage",
    doc_md=__doc__,
    description="Nightly retention: old runs, checkpoints, versions; never the champion's.",
    schedule="30 3 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    tags=["retention"],
    default_args={
        "owner": "trainyard",
        "retries": 2,
        "retry_delay": timedelta(seconds=60),
        "execution_timeout": timedelta(hours=2),
    },
    params={
        "keep_days": Param(
            30.0,
            type="number",
            minimum=1,
            title="Keep days",
            section="Retention",
            description="Age in days above which a run goes.",
        ),
        "keep_runs": Param(
            50,
            type="integer",
            minimum=1,
            title="Keep runs",
            section="Retention",
            description="Runs of each DAG above which the older ones go.",
        ),
        "checkpoint_days": Param(
            7.0,
            type="number",
            minimum=1,
            title="Checkpoint days",
            section="Retention",
            description="Age in days above which the checkpoints of finished trainings go.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            section="Retention",
            description="List in the log what would go, and remove nothing.",
        ),
    },
):
    CollectGarbageOperator(
        task_id="collect",
        keep_days=param("keep_days"),
        keep_runs=param("keep_runs"),
        checkpoint_days=param("checkpoint_days"),
        only_list=param("dry_run"),
    )
