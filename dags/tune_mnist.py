"""
# tune_mnist: search, then train with the best

Tries many settings of a training on handwritten digits, side by side on Spark; trains with the best
ones by the whole engine; judges that model, and lets it serve if it is good enough and better than
the one that serves now, whichever engine made either.

| task | what it does | its result |
|---|---|---|
| `doctor` | looks at all that the others need; an error ends the run here | XCom |
| `prepare` | checks the source, splits it by a hash of each row's key, writes Parquet | `data/` |
| `tune` | runs trials, one in each of Spark's slots, judged by the validation rows | `report/` |
| `train` | trains with the best trial's settings, on many ranks; registers the model | `model/` |
| `evaluate` | scores the model, and the champion, on the same test rows | `report/` |
| `promote` | applies the gate; moves the alias `champion`; a tie keeps the champion | XCom |
| `predict` | scores the test rows with the model that serves | `predictions/` |

**Run it** from the trigger form: `engine` is horovod (a network) or xgboost (trees), `trials` and
`time_budget` are the budget, `metric` and `direction` what trials are compared by, `space` what is
searched. An empty space takes the ranges that each engine's contract has beside its settings. A
range that a contract does not allow is refused before a trial runs. `fixed` are settings that all
trials share, such as `{"epochs": 10}` or `{"rounds": 50}`; `train` has them too.

**What comes of it.** Each trial is a run in MLflow below the search's, experiment `mnist`, with
its curves; `report/` has pictures of the history, of all trials side by side, and of what mattered,
and `trials.json`, which says why a trial failed. A retry runs no trial again that has ended.

**Your own data.** Copy this file and change it as `mnist_horovod` or `flight_delays_xgboost` says;
what your network needs (`network`, `input_shape`) goes into `fixed`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, chain

from trainyard.specs import Prepare, TrainHorovod, TrainXGBoost, Tune
from trainyard_airflow.operators.doctor import DoctorOperator
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.operators.train_best import TrainBestOperator
from trainyard_airflow.params import combine, gate_params, param, result, trigger_params
from trainyard_airflow.pipeline import judge_and_serve

MODEL = "mnist"
DATASET = result("prepare", "outputs", "dataset")

with DAG(
    dag_id="tune_mnist",
    doc_md=__doc__,
    description="Handwritten digits: prepare, search, train with the best, evaluate, promote.",
    schedule=None,
    catchup=False,
    max_active_runs=2,
    tags=["training", "search", "mnist"],
    default_args={
        "owner": "trainyard",
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
        "execution_timeout": timedelta(hours=8),
    },
    params=combine(
        trigger_params(
            Tune,
            "engine",
            "space",
            "fixed",
            "metric",
            "direction",
            "time_budget",
            "parallel",
            "sampler",
            "pruner",
            "prune_after_trials",
            "prune_after_steps",
            "seed",
            "study",
            trials=20,
        ),
        trigger_params(Prepare, source="sample:mnist"),
        trigger_params(TrainHorovod, "ranks"),
        trigger_params(TrainXGBoost, "num_workers"),
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
    tune = SparkJobOperator(
        task_id="tune",
        job=Tune(
            dataset=DATASET,
            engine=param("engine"),
            space=param("space"),
            fixed=param("fixed"),
            metric=param("metric"),
            direction=param("direction"),
            trials=param("trials"),
            time_budget=param("time_budget"),
            parallel=param("parallel"),
            sampler=param("sampler"),
            pruner=param("pruner"),
            prune_after_trials=param("prune_after_trials"),
            prune_after_steps=param("prune_after_steps"),
            seed=param("seed"),
            study=param("study"),
            experiment=MODEL,
        ),
    )
    train = TrainBestOperator(
        task_id="train",
        search="tune",
        jobs={
            "horovod": TrainHorovod(
                dataset=DATASET,
                ranks=param("ranks"),
                seed=param("seed"),
                experiment=MODEL,
                model_name=MODEL,
            ),
            "xgboost": TrainXGBoost(
                dataset=DATASET,
                num_workers=param("num_workers"),
                seed=param("seed"),
                experiment=MODEL,
                model_name=MODEL,
            ),
        },
        outlets=[Asset("mnist_model")],
    )
    served = judge_and_serve(
        MODEL,
        minimums={"accuracy": param("minimum_accuracy")},
        margins={"accuracy": param("margin_accuracy")},
        predictions=Asset("mnist_predictions"),
    )
    chain(doctor, prepare, tune, train, *served)
