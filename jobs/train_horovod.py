"""Train a PyTorch network with Horovod on Spark, store it, and register it as the challenger.

    spark-submit --master 'local[2]' jobs/train_horovod.py \\
        --run-dir=/data/runs/train --dataset=/data/runs/prepare/data --model-name=digits

A tiny one, to see that everything is in place:

    spark-submit --master 'local[1]' jobs/train_horovod.py --ranks=1 --epochs=1 \\
        --run-dir=/tmp/train --dataset=/data/runs/prepare/data --model-name=tiny

MLFLOW_TRACKING_URI names the MLflow server or database. `--help` lists every setting.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainyard import __version__, networks, store, tracking
from trainyard.barrier.engine import LaunchSettings
from trainyard.barrier.launch import BarrierLauncher, run_again
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.horovod import optimizer
from trainyard.horovod.history import TrainResult
from trainyard.horovod.launch import HorovodEngine
from trainyard.horovod.loader import check_rows
from trainyard.horovod.objective import check_objective
from trainyard.horovod.train import train
from trainyard.job import Run, run_job
from trainyard.layout import MODEL, PREPROCESSING, join
from trainyard.models import ModelMeta, save_model
from trainyard.session import spark_session
from trainyard.specs import TrainHorovod

if TYPE_CHECKING:
    from pyspark import SparkContext


def check(spec: TrainHorovod, dataset: Dataset) -> None:
    """Refuse what the ranks would stumble over, before they start."""
    dataset.check_files("train", "validation")
    if dataset.preprocessing is not None and dataset.preprocessing.leaves_missing:
        raise JobError(
            f"the dataset {dataset.directory!r} leaves missing numbers missing, or has categories "
            "as indexes, with which a network cannot do anything.",
            "Prepare it with imputation='mean' and encoding='onehot'.",
        )
    check_rows(dataset.rows("train"), ranks=spec.ranks, batch_size=spec.batch_size)
    optimizer.check(spec)
    network = networks.build(spec.network, spec.network_params)
    networks.check_fit(
        network,
        spec.network,
        input_shape=spec.input_shape,
        width=dataset.width,
        outputs=dataset.outputs,
        task=dataset.task,
    )
    check_objective(spec, dataset)


def launch(spec: TrainHorovod, dataset: Dataset, run: Run) -> TrainResult:
    """Train in a Spark session of its own; see `launch_in`."""
    with spark_session(f"{spec.job} {spec.model_name}", spec.imports, run.events) as spark:
        return launch_in(spark.sparkContext, spec, dataset, run)


def launch_in(context: SparkContext, spec: TrainHorovod, dataset: Dataset, run: Run) -> TrainResult:
    """Train on Spark, starting the ranks again when one was lost; return what rank 0 made.

    Raises:
        JobError: a rank failed for a reason of its own, or ranks were lost too often.
    """
    settings = LaunchSettings.of(spec, run.claim)
    engine = HorovodEngine(cycle_time_ms=spec.cycle_time_ms, stall_timeout=spec.stall_timeout)
    launcher = BarrierLauncher(context, settings, engine)

    def fn(launch: int) -> Callable[[], TrainResult]:
        return functools.partial(train, spec, dataset, claim=run.claim, launch=launch)

    return run_again(launcher, fn, spec.ranks, spec.relaunches, run.events.note)[0]


def store_model(spec: TrainHorovod, dataset: Dataset, trained: TrainResult) -> ModelMeta:
    """Write the best weights and what is needed to use them."""
    assert trained.state is not None  # noqa: S101 - rank 0 returns them
    meta = ModelMeta(
        network=spec.network,
        network_params=spec.network_params,
        input_shape=spec.input_shape,
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
    return save_model(directory, trained.state, meta)


def versions() -> dict[str, str]:
    """What the weights were made with."""
    import horovod
    import torch

    return {"torch": torch.__version__, "horovod": horovod.__version__, "trainyard": __version__}


def work(spec: TrainHorovod, run: Run) -> dict[str, Any]:
    """The job: read, check, train, store, register."""
    dataset = Dataset.read(spec.dataset)
    check(spec, dataset)
    tracking.experiment_id(spec.experiment)
    trained = launch(spec, dataset, run)
    model = store_model(spec, dataset, trained)
    directory = join(spec.run_dir, MODEL)
    run.events.note("recording the run and the model in MLflow")
    tracked = tracking.track(
        experiment=spec.experiment,
        model_name=spec.model_name,
        run_dir=spec.run_dir,
        model_directory=directory,
        model_sha256=model.weights_sha256,
        params=spec.to_mapping(),
        tags={"trainyard.dataset": dataset.fingerprint},
        history=[epoch.figures() for epoch in trained.history],
    )
    best = trained.best
    return {
        "outputs": {"model": directory, "model_uri": tracked.uri},
        "model": {
            "name": tracked.name,
            "version": tracked.version,
            "mlflow_run_id": tracked.run_id,
        },
        "metrics": {
            **best.figures(),
            "best_epoch": best.number,
            "epochs": len(trained.history),
            "rows_per_second": trained.rows_per_second,
        },
        "rows": trained.rows,
        "fingerprints": {"dataset": dataset.fingerprint, "model": model.weights_sha256},
    }


if __name__ == "__main__":
    sys.exit(run_job(TrainHorovod, work))
