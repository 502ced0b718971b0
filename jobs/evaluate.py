"""Judge a model on a dataset's split, and the champion on the same rows.

    MLFLOW_TRACKING_URI=sqlite:////tmp/run/mlflow.db \\
    spark-submit --master 'local[2]' jobs/evaluate.py --run-dir=/tmp/run/evaluate \\
        --dataset=/tmp/run/prepare/data --model=models:/digits/1 --champion=models:/digits@champion

Each row is scored once by each model. What cannot be judged (an empty split, one class, scores that
are not finite) is an error and never a number. The report has metrics.json and pictures.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard import plots, registry, store
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.job import Run, run_job
from trainyard.judgement import (
    CHALLENGER,
    CHAMPION,
    Judgement,
    Mistake,
    compare,
    judge,
    mistakes,
    score,
)
from trainyard.layout import REPORT, join
from trainyard.models import ModelIdentity, StoredModel, resolve_model
from trainyard.scoring import Shipped, check_model
from trainyard.session import spark_session
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Evaluate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MISTAKES = 16


def evaluate(spec: Evaluate, run: Run) -> dict[str, Any]:
    """Run the job in a Spark session of its own."""
    with spark_session(f"evaluate {spec.model}") as spark, unwrapped():
        return evaluate_model(spark, spec, run)


def evaluate_model(spark: SparkSession, spec: Evaluate, run: Run) -> dict[str, Any]:
    """Judge the model and return the result's fields.

    Raises:
        JobError: the models do not fit the dataset, or nothing can be judged.
    """
    dataset = Dataset.read(spec.dataset)
    rows = dataset.rows(spec.split)
    if rows == 0:
        raise JobError(
            f"the {spec.split} split of {spec.dataset!r} has 0 rows.",
            f"Prepare the dataset with a {spec.split} share, or judge by another split.",
        )
    stored, identities = load_models(spec, dataset)
    models = {name: Shipped(spark, model, spec.batch_size) for name, model in stored.items()}

    run.events.progress("score", 0, rows, "rows")
    scored = score(spark, dataset, spec.split, models).persist()
    classes = len(dataset.classes)
    judgements = {name: judge(scored, name, classes, spec.confidence) for name in models}
    run.events.progress("score", rows, rows, "rows")
    champion = identities.get(CHAMPION)
    result: dict[str, Any] = {
        "model": dataclasses.asdict(identities[CHALLENGER]),
        "metrics": figures(judgements[CHALLENGER]),
        "champion": champion
        and {**dataclasses.asdict(champion), "metrics": figures(judgements[CHAMPION])},
        "comparison": compare(scored) if champion else None,
        "rows": {spec.split: rows},
        "fingerprints": {"dataset": dataset.fingerprint},
    }
    wrong = mistakes(spark, dataset, spec.split, scored, _MISTAKES)
    pictures = draw(dataset, spec.split, stored[CHALLENGER], judgements[CHALLENGER], wrong)
    report(spec, run, result, pictures)
    return {"outputs": {"report": join(run.directory, REPORT)}, **result}


def load_models(
    spec: Evaluate, dataset: Dataset
) -> tuple[dict[str, StoredModel], dict[str, ModelIdentity]]:
    """The challenger and, if there is one yet, the champion; each fits the dataset."""
    uris = {CHALLENGER: spec.model}
    if spec.champion and not _is_absent(spec.champion):
        uris[CHAMPION] = spec.champion
    stored, identities = {}, {}
    for name, uri in uris.items():
        directory, identities[name] = resolve_model(uri)
        stored[name] = StoredModel.read(directory)
        stored[name].meta.check_dataset(dataset)
        check_model(stored[name], identities[name].uri)
    return stored, identities


def _is_absent(uri: str) -> bool:
    return registry.is_model_uri(uri) and registry.find(uri) is None


def figures(judgement: Judgement) -> dict[str, dict[str, float]]:
    """Metrics as plain values."""
    return {name: dataclasses.asdict(metric) for name, metric in judgement.metrics.items()}


def draw(
    dataset: Dataset, split: str, model: StoredModel, judgement: Judgement, wrong: list[Mistake]
) -> dict[str, bytes]:
    """The report's pictures by file name."""
    rows = int(judgement.confusion.sum())
    classes = dataset.classes
    accuracy = judgement.metrics["accuracy"]
    title = (
        f"{rows} rows of the {split} split\n"
        f"accuracy {accuracy.value:.3f} ({accuracy.low:.3f} to {accuracy.high:.3f})"
    )
    pictures = {"confusion.png": plots.confusion(judgement.confusion, classes, title)}
    shape = model.meta.input_shape
    if wrong and len(shape) == 3 and shape[0] in (1, 3):
        pictures["mistakes.png"] = plots.images(
            np.stack([mistake.features for mistake in wrong]).reshape(-1, *shape),
            [f"{classes[m.label]} as {classes[m.prediction]}\n{m.probability:.2f}" for m in wrong],
            f"The {len(wrong)} surest mistakes of {rows - int(np.trace(judgement.confusion))}",
            "true class as predicted class, and the prediction's probability",
        )
    return pictures


def report(spec: Evaluate, run: Run, result: dict[str, Any], pictures: dict[str, bytes]) -> None:
    """Write the report's directory, and log it to the MLflow run if there is one."""
    files = {"metrics.json": store.to_json(result), **pictures}
    for name, data in files.items():
        store.write_bytes(join(run.directory, REPORT, name), data)
    if spec.mlflow_run_id is None:
        return
    with tempfile.TemporaryDirectory(prefix="trainyard-report-") as directory:
        for name, data in files.items():
            (Path(directory) / name).write_bytes(data)
        values = {
            f"{spec.split}_{name}": metric["value"] for name, metric in result["metrics"].items()
        }
        registry.log_report(spec.mlflow_run_id, values, Path(directory), f"{REPORT}/{spec.split}")


if __name__ == "__main__":
    sys.exit(run_job(Evaluate, evaluate))
