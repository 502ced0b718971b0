"""
# mnist_horovod: from handwritten digits to served predictions

Prepares a dataset, trains a network on it with Horovod on Spark, judges it, lets it serve if it is
good enough and better than the model that serves now, and scores the test rows with the one that
serves then.

| task | what it does | its result |
|---|---|---|
| `doctor` | looks at all that the others need; an error ends the run here | XCom |
| `prepare` | checks the source, splits it by a hash of each row's key, writes Parquet | `data/` |
| `train` | trains with one Horovod rank a Spark task; registers the model with MLflow | `model/` |
| `evaluate` | scores the model, and the champion, on the same test rows | `report/` |
| `promote` | applies the gate; moves the alias `champion`; a tie keeps the champion | XCom |
| `predict` | scores the test rows with the model that serves | `predictions/` |

**Run it** from the trigger form, where every field says what it does. A rejected model does not
fail the run: `promote` says which model stays and why. Two runs at once share nothing but the
registry.

**Where things are.** Each task works under `<store>/mnist_horovod/<run>/<task>/g<generation>/`; its
XCom and its asset's events name the exact paths. Metrics and plots are in MLflow, experiment
`mnist`. A retry continues where the last try stopped; clearing a task starts it anew.

**Your own data and network.** Copy this file, change `dag_id`, `MODEL` and the defaults below:
`source` (Parquet, CSV, JSON, IDX, `table:NAME` or `sample:NAME`), `schema`, the columns, `network`
(`module:Class` of a `torch.nn.Module` that the jobs' environment can import) and `input_shape` (of
one row's features).
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, chain

from trainyard.specs import Prepare, TrainHorovod
from trainyard_airflow.operators.doctor import DoctorOperator
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import combine, gate_params, param, result, trigger_params
from trainyard_airflow.pipeline import judge_and_serve

MODEL = "mnist"

with DAG(
    dag_id="mnist_horovod",
    doc_md=__doc__,
    description="Handwritten digits: prepare, train with Horovod, evaluate, promote, predict.",
    schedule=None,  # nightly: schedule="0 2 * * *" and a fixed start_date
    catchup=False,
    max_active_runs=2,
    tags=["training", "horovod", "mnist"],
    default_args={
        "owner": "trainyard",
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
        "execution_timeout": timedelta(hours=2),
    },
    params=combine(
        trigger_params(Prepare, source="sample:mnist"),
        trigger_params(
            TrainHorovod,
            "ranks",
            "batch_size",
            "optimizer",
            "optimizer_params",
            "schedule",
            "warmup_epochs",
            "patience",
            "class_weights",
            "clip_norm",
            "backward_passes_per_step",
            "compression",
            "seed",
            "network",
            "network_params",
            epochs=30,
            learning_rate=0.025,
        ),
        gate_params("accuracy", minimum=0.9),
    ),
):
    doctor = DoctorOperator(task_id="doctor")
    prepare = SparkJobOperator(
        task_id="prepare",
        job=Prepare(
            source=param("source"), schema="mnist", features=("pixels",), label="digit", key="id"
        ),
        outlets=[Asset("mnist_dataset")],
    )
    train = SparkJobOperator(
        task_id="train",
        job=TrainHorovod(
            dataset=result("prepare", "outputs", "dataset"),
            ranks=param("ranks"),
            epochs=param("epochs"),
            batch_size=param("batch_size"),
            optimizer=param("optimizer"),
            optimizer_params=param("optimizer_params"),
            learning_rate=param("learning_rate"),
            schedule=param("schedule"),
            warmup_epochs=param("warmup_epochs"),
            patience=param("patience"),
            class_weights=param("class_weights"),
            clip_norm=param("clip_norm"),
            backward_passes_per_step=param("backward_passes_per_step"),
            compression=param("compression"),
            seed=param("seed"),
            network=param("network"),
            network_params=param("network_params"),
            experiment=MODEL,
            model_name=MODEL,
        ),
        outlets=[Asset("mnist_model")],
    )
    served = judge_and_serve(
        MODEL,
        minimums={"accuracy": param("minimum_accuracy")},
        margins={"accuracy": param("margin_accuracy")},
        predictions=Asset("mnist_predictions"),
    )
    chain(doctor, prepare, train, *served)
