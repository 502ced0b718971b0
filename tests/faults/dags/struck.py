"""What faults strike: a short job and a training, waited for in the triggerer or in a worker."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from trainyard.specs import Prepare, TrainHorovod
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import param

RETRIES = {"retries": 6, "retry_delay": timedelta(seconds=2)}

PREPARE = Prepare(source="sample:mnist", features=("pixels",), label="digit", key="id", reuse=False)
TRAIN = TrainHorovod(dataset=param("dataset"), epochs=param("epochs"), model_name="struck")

for place, deferrable in [("triggerer", True), ("worker", False)]:
    with DAG(dag_id=f"prepare_in_{place}", schedule=None, catchup=False, default_args=RETRIES):
        SparkJobOperator(task_id="job", job=PREPARE, deferrable=deferrable)

    with DAG(
        dag_id=f"train_in_{place}",
        schedule=None,
        catchup=False,
        default_args=RETRIES,
        params={"dataset": Param(type="string"), "epochs": Param(30, type="integer")},
    ):
        SparkJobOperator(task_id="job", job=TRAIN, deferrable=deferrable)
