"""What bench/cluster_mode.py runs: the same job in both modes, and one that does not end."""

from __future__ import annotations

from airflow.sdk import DAG, Param, chain

from trainyard.specs import Prepare, TrainHorovod
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import param

with DAG(dag_id="both_modes", schedule=None, catchup=False):
    tasks = [
        SparkJobOperator(
            task_id=mode,
            conn_id=conn_id,
            job=Prepare(
                source="sample:mnist", features=("pixels",), label="digit", key="id", reuse=False
            ),
        )
        for mode, conn_id in (("client", "spark_client"), ("cluster", "spark_default"))
    ]
    chain(*tasks)

with DAG(dag_id="endless", schedule=None, catchup=False, params={"dataset": Param(type="string")}):
    SparkJobOperator(
        task_id="train",
        job=TrainHorovod(dataset=param("dataset"), epochs=100_000, model_name="endless"),
    )
