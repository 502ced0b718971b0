"""Judge a model on a dataset's split, and the champion on the same rows.

    MLFLOW_TRACKING_URI=sqlite:////tmp/run/mlflow.db \\
    spark-submit --master 'local[2]' jobs/evaluate.py --run-dir=/tmp/run/evaluate \\
        --dataset=/tmp/run/prepare/data --model=models:/digits/1 --champion=models:/digits@champion

Each row is scored once by each model. What cannot be judged (an empty split, one class, labels that
are null, scores that are not finite) is an error and never a number. The report has metrics.json,
with the metrics of each slice, pictures, and charts.json, from which Airflow's page draws them.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard import registry, store
from trainyard.bootstrap import Plan, intervals
from trainyard.charts import charts
from trainyard.dataset import REGRESSION, Dataset
from trainyard.errors import JobError
from trainyard.job import Run, run_job
from trainyard.judgement import CHALLENGER, CHAMPION, Split, compare, judge, score
from trainyard.layout import CHARTS, METRICS, REPORT, join
from trainyard.metrics import Metric
from trainyard.mistakes import misses, mistakes
from trainyard.models import ModelIdentity, StoredModel, resolve_model
from trainyard.pictures import draw
from trainyard.scoring import check_model
from trainyard.session import spark_session
from trainyard.slices import Slice, check_columns, slices
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Evaluate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORST = 16
"""Rows that the report shows of those that the model got most wrong."""


def evaluate(spec: Evaluate, run: Run) -> dict[str, Any]:
    """Run the job in a Spark session of its own."""
    with spark_session(f"evaluate {spec.model}", spec.imports, run.events) as spark, unwrapped():
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
    dataset.check_files(spec.split)
    check_columns(spec.slices, dataset)
    stored, identities = load_models(spec, dataset)

    run.events.progress("score", 0, rows, "rows")
    split = Split(
        dataset=dataset, name=spec.split, run_dir=run.directory, batch_size=spec.batch_size
    )
    scored = score(spark, split, stored).persist()
    judged = judge(scored, dataset, list(stored), spec.bootstrap_rows)
    run.events.progress("score", rows, rows, "rows")
    run.events.progress("judge", 0, rows, "rows")
    plan = Plan(samples=spec.bootstrap_samples, confidence=spec.confidence, seed=spec.seed)
    overall = intervals(judged.models, plan, judged.exact, judged.share)
    by_slice = slices(judged, dataset, spec.slices, plan)
    classes = dataset.task != REGRESSION
    champion = identities.get(CHAMPION)
    result: dict[str, Any] = {
        "task": dataset.task,
        "model": dataclasses.asdict(identities[CHALLENGER]),
        "metrics": figures(overall.metrics[CHALLENGER]),
        "champion": champion
        and {**dataclasses.asdict(champion), "metrics": figures(overall.metrics[CHAMPION])},
        "differences": figures(overall.differences),
        "comparison": compare(scored) if champion and classes else None,
        "slices": slice_values(by_slice),
        "rows": {spec.split: rows},
        "resampled_rows": next(iter(judged.models.values())).rows,
        "fingerprints": {"dataset": dataset.fingerprint},
    }
    wrong = mistakes(spark, dataset, spec.split, scored, _WORST) if classes else []
    missed = [] if classes else misses(scored, _WORST)
    shape = stored[CHALLENGER].meta.input_shape
    pictures = draw(dataset, spec.split, judged, overall, by_slice, wrong, shape)
    pictures[CHARTS] = store.to_json(charts(dataset, judged, wrong, missed, shape))
    report(spec, run, {**result, "slices": slice_details(by_slice)}, pictures)
    run.events.progress("judge", rows, rows, "rows")
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


def figures(metrics: Mapping[str, Metric]) -> dict[str, dict[str, float]]:
    """Metrics as plain values."""
    return {name: dataclasses.asdict(metric) for name, metric in metrics.items()}


def slice_values(found: list[Slice]) -> dict[str, dict[str, Any]]:
    """The challenger's bare values by column and value, small enough for a task's result."""
    values: dict[str, dict[str, Any]] = {}
    for part in found:
        metrics = {n: metric.value for n, metric in part.found.metrics[CHALLENGER].items()}
        values.setdefault(part.column, {})[part.value] = {"rows": part.rows, "metrics": metrics}
    return values


def slice_details(found: list[Slice]) -> dict[str, dict[str, Any]]:
    """All that is known of each slice by column and value."""
    details: dict[str, dict[str, Any]] = {}
    for part in found:
        models = {name: figures(metrics) for name, metrics in part.found.metrics.items()}
        details.setdefault(part.column, {})[part.value] = {
            "rows": part.rows,
            "metrics": models[CHALLENGER],
            "champion": models.get(CHAMPION),
            "differences": figures(part.found.differences),
        }
    return details


def report(spec: Evaluate, run: Run, result: dict[str, Any], pictures: dict[str, bytes]) -> None:
    """Write the report's directory, and log it to the MLflow run if there is one."""
    files = {METRICS: store.to_json(result), **pictures}
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
