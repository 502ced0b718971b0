"""Train boosted trees with XGBoost on Spark, store them, and register them as the challenger.

    spark-submit --master 'local[2]' jobs/train_xgboost.py \\
        --run-dir=/data/runs/train --dataset=/data/runs/prepare/data --model-name=flights

A tiny one, to see that everything is in place:

    spark-submit --master 'local[1]' jobs/train_xgboost.py --rounds=2 \\
        --run-dir=/tmp/train --dataset=/data/runs/prepare/data --model-name=tiny

Weights, base margins, categories, missing numbers and the validation split are the dataset's: see
`prepare`. MLFLOW_TRACKING_URI names the MLflow server or database. `--help` lists every setting.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard import __version__, store, tracking
from trainyard.barrier.engine import LaunchSettings
from trainyard.barrier.launch import BarrierLauncher, run_again
from trainyard.barrier.slots import all_slots
from trainyard.dataset import Dataset
from trainyard.job import Run, run_job
from trainyard.layout import MODEL, PREPROCESSING, REPORT, join
from trainyard.models import BOOSTER, XGBOOST, ModelMeta, StoredModel, save_bytes
from trainyard.session import spark_session
from trainyard.specs import TrainXGBoost
from trainyard.xgboost import params
from trainyard.xgboost.engine import XGBoostEngine
from trainyard.xgboost.explain import Explanation, explain
from trainyard.xgboost.history import TrainResult
from trainyard.xgboost.train import train

if TYPE_CHECKING:
    from pyspark import SparkContext


def launch(spec: TrainXGBoost, dataset: Dataset, run: Run) -> TrainResult:
    """Train in a Spark session of its own; see `launch_in`."""
    with spark_session(f"{spec.job} {spec.model_name}", spec.imports, run.events) as spark:
        return launch_in(spark.sparkContext, spec, dataset, run)


def launch_in(context: SparkContext, spec: TrainXGBoost, dataset: Dataset, run: Run) -> TrainResult:
    """Train on Spark, starting the workers again when one was lost; return what rank 0 made.

    Raises:
        JobError: a worker failed for a reason of its own, or workers were lost too often.
    """
    settings = LaunchSettings.of(spec, run.claim)
    engine = XGBoostEngine(start_timeout=spec.start_timeout, stall_timeout=spec.stall_timeout)
    launcher = BarrierLauncher(context, settings, engine)
    workers = spec.num_workers or all_slots(context)
    if (rows := dataset.rows("train")) < workers:
        run.events.note(f"{workers - rows} of {workers} workers have no row of the {rows}")

    def fn(launch: int) -> Callable[[], TrainResult]:
        return functools.partial(train, spec, dataset, claim=run.claim, launch=launch)

    return run_again(launcher, fn, workers, spec.relaunches, run.events.note)[0]


def store_model(spec: TrainXGBoost, dataset: Dataset, trained: TrainResult) -> StoredModel:
    """Write the trees up to the best round, and what is needed to use them."""
    assert trained.booster is not None  # noqa: S101 - rank 0 returns them
    meta = ModelMeta(
        engine=XGBOOST,
        missing=spec.missing,
        base_margin=dataset.base_margin,
        task=dataset.task,
        features=dataset.features,
        key=dataset.key,
        label=dataset.label,
        classes=dataset.classes,
        width=dataset.width,
        preprocessing=dataset.preprocessing,
        dataset_fingerprint=dataset.fingerprint,
        settings=spec.to_mapping(),
        versions=versions(),
    )
    directory = join(spec.run_dir, MODEL)
    if dataset.preprocessing is not None:
        store.copy(join(dataset.directory, PREPROCESSING), join(directory, PREPROCESSING))
    meta = save_bytes(directory, trained.booster, meta)
    return StoredModel(directory=directory, meta=meta, weights=trained.booster)


def versions() -> dict[str, str]:
    """What the trees were made with."""
    import xgboost

    return {"xgboost": xgboost.__version__, "trainyard": __version__}


def explanation_of(spec: TrainXGBoost, dataset: Dataset, model: StoredModel) -> Explanation:
    """Explain the model, and write the files that do so into the run's report."""
    found = explain(model.booster(), dataset, rows=spec.explained_rows, missing=model.meta.missing)
    for name, data in found.files.items():
        store.write_bytes(join(spec.run_dir, REPORT, name), data)
    return found


def add_flavour(model: StoredModel, directory: Path) -> None:
    """Add to a model directory what MLflow's xgboost flavour wants beside the same model.ubj."""
    import mlflow.xgboost
    import xgboost

    with tempfile.TemporaryDirectory(prefix="trainyard-flavour-") as parent:
        made = Path(parent) / "model"
        # Named, since MLflow would start a process to find them out.
        needs = [f"xgboost=={xgboost.__version__}"]
        mlflow.xgboost.save_model(
            model.booster(), str(made), model_format="ubj", pip_requirements=needs
        )
        for path in made.iterdir():
            if path.name != BOOSTER:
                shutil.copy(path, directory)


def work(spec: TrainXGBoost, run: Run) -> dict[str, Any]:
    """The job: read, check, train, store, explain, register."""
    dataset = Dataset.read(spec.dataset)
    dataset.check_files("train", "validation")
    goal = params.check(spec, dataset)
    tracking.experiment_id(spec.experiment)
    trained = launch(spec, dataset, run)
    model = store_model(spec, dataset, trained)
    explanation = explanation_of(spec, dataset, model)
    run.events.note("recording the run and the model in MLflow")
    tracked = tracking.track(
        experiment=spec.experiment,
        model_name=spec.model_name,
        run_dir=spec.run_dir,
        model_directory=model.directory,
        model_sha256=model.meta.weights_sha256,
        params={
            **spec.to_mapping(),
            "objective": goal.objective,
            "workers": trained.workers,
            "best_round": trained.best.number,
        },
        tags={"trainyard.dataset": dataset.fingerprint},
        history=[done.figures for done in trained.history],
        files={f"explanation/{name}": data for name, data in explanation.files.items()},
        complete=functools.partial(add_flavour, model),
    )
    return {
        "outputs": {
            "model": model.directory,
            "model_uri": tracked.uri,
            "report": join(spec.run_dir, REPORT),
        },
        "model": {
            "name": tracked.name,
            "version": tracked.version,
            "mlflow_run_id": tracked.run_id,
        },
        "metrics": {
            **trained.best.figures,
            "best_round": trained.best.number,
            "rounds": len(trained.history),
            "rounds_per_second": trained.rounds_per_second,
        },
        "features": list(explanation.top[:10]),
        "workers": trained.workers,
        "rows": trained.rows,
        "fingerprints": {"dataset": dataset.fingerprint, "model": model.meta.weights_sha256},
    }


if __name__ == "__main__":
    sys.exit(run_job(TrainXGBoost, work))
