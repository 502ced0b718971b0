"""
# flight_delays_xgboost: will this flight arrive late?

Joins a year of flights from New York with the weather and the planes, trains boosted trees with
XGBoost on Spark to say whether a flight arrives more than 15 minutes late, judges them on later
months, lets them serve if they are good enough and better than the model that serves now, and
scores a month that nothing has seen.

| task | what it does | its result |
|---|---|---|
| `doctor` | looks at all that the others need; an error ends the run here | XCom |
| `prepare` | runs the query, checks its rows, splits them by date, writes Parquet | `data/` |
| `train` | trains until validation gets no better; registers the model with MLflow | `model/` |
| `evaluate` | scores the model and the champion; by carrier and origin too | `report/` |
| `promote` | applies the gate; moves the alias `champion`; a tie keeps the champion | XCom |
| `predict` | scores the held-out month with the model that serves | `predictions/` |

**What the model knows** is in `jobs/trainyard/queries/flight_delays.sql`: the schedule, the route,
the carrier, the plane, and the weather an hour before; nothing of what the flight then did.
Cancelled and diverted flights have no arrival and are left out: `prepare` says how many rows each
table had, and how many the query made of them. Missing values stay missing, which XGBoost takes.

**Run it** from the trigger form, where every field says what it does. With `task` set to regression
it predicts the minutes of delay, as a model of its own, `flight_delays_minutes`. A rejected model
does not fail the run: `promote` says which model stays and why.

**Where things are.** Each task works under
`<store>/flight_delays_xgboost/<run>/<task>/g<generation>/`; its XCom and its asset's events name
the exact paths. Metrics, importances and plots are in MLflow, experiment `flight_delays`. A retry
continues where the last try stopped; clearing a task starts it anew.

**Your own tables.** Copy this file, change `dag_id`, `MODEL`, `tables` (name to source: Parquet,
CSV, JSON, `table:NAME` or `sample:NAME`), `query` (a SELECT or the path of a .sql file) and the
columns.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, chain

from trainyard.specs import Prepare, TrainXGBoost
from trainyard_airflow.operators.doctor import DoctorOperator
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import (
    by_choice,
    combine,
    gate_params,
    param,
    result,
    trigger_params,
)
from trainyard_airflow.pipeline import judge_and_serve

MODEL = by_choice("task", classification="flight_delays", regression="flight_delays_minutes")
LABEL = by_choice("task", classification="late", regression="arr_delay")
CATEGORIES = ("carrier", "origin", "dest", "engine")
SCHEDULE = ("distance", "departs", "arrives", "weekday")
PLANE = ("plane_age", "seats", "engines")
WEATHER = (
    *(
        "temp",
        "dewp",
        "humid",
        "wind_dir",
        "wind_speed",
        "wind_gust",
        "precip",
        "pressure",
        "visib",
    ),
)

with DAG(
    dag_id="flight_delays_xgboost",
    doc_md=__doc__,
    description="Late flights: join, train with XGBoost, evaluate, promote, predict.",
    schedule=None,  # nightly: schedule="0 2 * * *" and a fixed start_date
    catchup=False,
    max_active_runs=2,
    tags=["training", "xgboost", "flights"],
    default_args={
        "owner": "trainyard",
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
        "execution_timeout": timedelta(hours=2),
    },
    params=combine(
        trigger_params(
            Prepare,
            "task",
            tables={name: f"sample:{name}" for name in ("flights", "weather", "planes")},
            validation_from="2013-09-01",
            test_from="2013-10-01",
            holdout_from="2013-12-01",
        ),
        trigger_params(
            TrainXGBoost,
            "num_workers",
            "booster_params",
            "seed",
            rounds=400,
            learning_rate=0.1,
            max_depth=6,
            early_stopping_rounds=20,
        ),
        gate_params("roc_auc", minimum=0.65),
    ),
):
    doctor = DoctorOperator(task_id="doctor")
    prepare = SparkJobOperator(
        task_id="prepare",
        job=Prepare(
            tables=param("tables"),
            query="flight_delays",
            task=param("task"),
            features=(*SCHEDULE, *PLANE, *WEATHER, *CATEGORIES),
            categorical=CATEGORIES,
            label=LABEL,
            key="flight",
            keep=("carrier", "origin"),
            imputation="keep",
            encoding="index",
            split_by="time",
            split_column="day",
            validation_from=param("validation_from"),
            test_from=param("test_from"),
            holdout_from=param("holdout_from"),
        ),
        outlets=[Asset("flight_delays_dataset")],
    )
    train = SparkJobOperator(
        task_id="train",
        job=TrainXGBoost(
            dataset=result("prepare", "outputs", "dataset"),
            num_workers=param("num_workers"),
            rounds=param("rounds"),
            learning_rate=param("learning_rate"),
            max_depth=param("max_depth"),
            booster_params=param("booster_params"),
            early_stopping_rounds=param("early_stopping_rounds"),
            seed=param("seed"),
            metrics=by_choice("task", classification="logloss,auc", regression="rmse"),
            experiment="flight_delays",
            model_name=MODEL,
        ),
        outlets=[Asset("flight_delays_model")],
    )
    served = judge_and_serve(
        MODEL,
        minimums={
            "roc_auc": by_choice("task", classification=param("minimum_roc_auc"), regression=None)
        },
        margins={
            "roc_auc": by_choice("task", classification=param("margin_roc_auc"), regression=None),
            "rmse": by_choice("task", classification=None, regression=0),
        },
        slices=("carrier", "origin"),
        scored="holdout",
        predictions=Asset("flight_delays_predictions"),
    )
    chain(doctor, prepare, train, *served)
