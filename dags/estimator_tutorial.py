"""
# estimator_tutorial: a Spark ML estimator trains on digits

The tutorial of Horovod's Spark estimator, for code that is written that way and is to stay so: a
DataFrame of 1,797 digits, `randomSplit`, `TorchEstimator` with a store and two ranks, `transform`,
and Spark ML's `MulticlassClassificationEvaluator`. The job is
[estimator_tutorial.py](../jobs/estimator_tutorial.py): read it beside your own program.

| task | what it does | its result |
|---|---|---|
| `doctor` | looks at all that the other needs; an error ends the run here | XCom |
| `tutorial` | splits, fits, transforms, evaluates | XCom: accuracy, best epoch, run |

**Run it** from the trigger form.

**Where things are.** The run's checkpoints and its history lie in the estimator's store,
`<store>/estimator_tutorial/<run>/tutorial/g<generation>/store/`. The rows that the ranks read are
removed when they are trained on.

**Your own program** runs the same way without this DAG: `pip install ./jobs`, import from
`trainyard.horovod` what you imported from `horovod.spark`, and submit it.
`python -m trainyard.migrate FILE` says line by line what else to change.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, chain

from trainyard.specs import EstimatorTutorial
from trainyard_airflow.operators.doctor import DoctorOperator
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import param, trigger_params

with DAG(
    dag_id="estimator_tutorial",
    doc_md=__doc__,
    description="Digits by a Spark ML estimator: split, fit with Horovod, transform, evaluate.",
    schedule=None,
    catchup=False,
    max_active_runs=2,
    tags=["training", "horovod", "estimator"],
    default_args={
        "owner": "trainyard",
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
        "execution_timeout": timedelta(hours=1),
    },
    params=trigger_params(
        EstimatorTutorial,
        "num_proc",
        "epochs",
        "batch_size",
        "learning_rate",
        "validation",
        "seed",
    ),
):
    doctor = DoctorOperator(task_id="doctor")
    tutorial = SparkJobOperator(
        task_id="tutorial",
        job=EstimatorTutorial(
            num_proc=param("num_proc"),
            epochs=param("epochs"),
            batch_size=param("batch_size"),
            learning_rate=param("learning_rate"),
            validation=param("validation"),
            seed=param("seed"),
        ),
    )
    chain(doctor, tutorial)
