"""What a pipeline ends with, behind its tasks `prepare` and `train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset, BaseOperator

from trainyard.specs import Evaluate, Predict
from trainyard_airflow.operators.promote import PromoteModelOperator
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import param, result


def judge_and_serve(
    model: str,
    *,
    minimums: Mapping[str, Any],
    margins: Mapping[str, Any],
    predictions: Asset,
    slices: Sequence[str] = (),
    scored: str = "test",
) -> list[BaseOperator]:
    """The tasks that judge what `train` made, let it serve if it may, and score with what serves.

    The form of the DAG has `gate_paired` and `gate_mode`; see `params.gate_params`.

    Args:
        model: name of the registered model, or a template of it.
        minimums: of `PromoteModelOperator`.
        margins: likewise.
        predictions: what the last task makes.
        slices: columns, kept by `prepare`, by whose values the model is judged too.
        scored: the part of the dataset whose rows the last task scores.
    """
    dataset = result("prepare", "outputs", "dataset")
    evaluate = SparkJobOperator(
        task_id="evaluate",
        job=Evaluate(
            dataset=dataset,
            model=result("train", "outputs", "model_uri"),
            champion=f"models:/{model}@champion",
            mlflow_run_id=result("train", "model", "mlflow_run_id"),
            slices=tuple(slices),
        ),
    )
    promote = PromoteModelOperator(
        task_id="promote",
        evaluation=evaluate.output,
        minimums=minimums,
        margins=margins,
        paired=param("gate_paired"),
        mode=param("gate_mode"),
    )
    predict = SparkJobOperator(
        task_id="predict",
        job=Predict(
            source=dataset,
            format="dataset",
            split=scored,
            model=result("promote", "champion", "uri"),
        ),
        outlets=[predictions],
    )
    return [evaluate, promote, predict]
