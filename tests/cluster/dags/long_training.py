"""A training that takes longer than any test, once with a time-out of a minute."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from trainyard.specs import TrainHorovod
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import param

for dag_id, timeout in [("long_training", 3600), ("timed_training", 90)]:
    with DAG(
        dag_id=dag_id,
        schedule=None,
        catchup=False,
        params={"dataset": Param(type="string")},
        default_args={"retries": 0},
    ):
        SparkJobOperator(
            task_id="train",
            job=TrainHorovod(dataset=param("dataset"), epochs=10_000, model_name="long"),
            execution_timeout=timedelta(seconds=timeout),
        )
