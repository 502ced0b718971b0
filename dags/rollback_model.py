"""
# rollback_model: let another version serve

Moves the alias `champion` of a registered model to another of its versions, on a person's word: for
when the model that serves turns out to be wrong. Runs that score afterwards use the other version.

| task | what it does | its result |
|---|---|---|
| `rollback` | checks that the version is there, moves the alias, reads it back | XCom |

**Run it** from the trigger form. Without a version the one goes back that served before. `who` and
`why` are recorded as tags of the version in MLflow and in the event of the asset `served_model`.

It is the operation by which a pipeline promotes, in the same pool, so that the two never
interleave. Without a version, a second run undoes the first.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, Param

from trainyard_airflow.operators.rollback import RollbackModelOperator
from trainyard_airflow.params import param

with DAG(
    dag_id="rollback_model",
    doc_md=__doc__,
    description="Let another version of a registered model serve, and record who and why.",
    schedule=None,
    catchup=False,
    max_active_runs=2,
    tags=["registry"],
    default_args={
        "owner": "trainyard",
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
        "execution_timeout": timedelta(minutes=10),
    },
    params={
        "model_name": Param(
            "mnist",
            type="string",
            minLength=1,
            title="Model name",
            section="Rollback",
            description="Name of the registered model.",
        ),
        "version": Param(
            "",
            type="string",
            pattern="^[0-9]*$",
            title="Version",
            section="Rollback",
            description="The version that is to serve; empty for the one that served before.",
        ),
        "who": Param(
            type="string",
            minLength=1,
            title="Who",
            section="Rollback",
            description="Who decided; required.",
        ),
        "why": Param(
            type="string",
            minLength=1,
            title="Why",
            section="Rollback",
            description="The reason; required.",
        ),
    },
):
    RollbackModelOperator(
        task_id="rollback",
        model_name=param("model_name"),
        version=param("version"),
        who=param("who"),
        why=param("why"),
        outlets=[Asset("served_model")],
    )
