"""One training stage on so many workers, in a process of its own: prints the seconds that it took.

    python -m support.scaled ENGINE DATASET WORKERS SETTINGS

The session is there before the clock starts; Spark's Python workers are not, as in a job.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyspark import SparkContext

from support.local import local_spark
from trainyard.barrier.engine import LaunchSettings
from trainyard.barrier.launch import BarrierLauncher
from trainyard.dataset import Dataset
from trainyard.models import save_model
from trainyard.session import spark_session
from trainyard.specs import TrainHorovod, TrainXGBoost


def main() -> None:
    """Launch, train, store the model."""
    engine, directory, workers, settings = sys.argv[1:]
    dataset = Dataset.read(directory)
    local_spark(int(workers))
    with tempfile.TemporaryDirectory() as run_dir, spark_session("bench") as spark:
        given = {
            "run_dir": run_dir,
            "dataset": directory,
            "model_name": "bench",
            **json.loads(settings),
        }
        began = time.monotonic()
        ENGINES[engine](spark.sparkContext, dataset, int(workers), given)
        print(time.monotonic() - began, flush=True)


def xgboost(context: SparkContext, dataset: Dataset, workers: int, given: dict[str, Any]) -> None:
    """The job train_xgboost, but for what it records."""
    import train_xgboost
    from trainyard.xgboost.engine import XGBoostEngine
    from trainyard.xgboost.train import train

    spec = TrainXGBoost.from_mapping({**given, "num_workers": workers})
    engine = XGBoostEngine(start_timeout=spec.start_timeout, stall_timeout=spec.stall_timeout)
    launcher = BarrierLauncher(context, LaunchSettings.of(spec, claim=1), engine)
    trained = launcher.run(functools.partial(train, spec, dataset, claim=1), workers)[0]
    train_xgboost.store_model(spec, dataset, trained)


def horovod(context: SparkContext, dataset: Dataset, workers: int, given: dict[str, Any]) -> None:
    """The job train_horovod, but for what it records."""
    from support.stage import meta_of
    from trainyard.horovod.launch import HorovodEngine
    from trainyard.horovod.train import train

    network = {
        "network": "support.tabular:TabularNet",
        "network_params": {"features": dataset.width},
        "input_shape": [dataset.width],
        "batch_size": 512,
    }
    spec = TrainHorovod.from_mapping({**network, **given, "ranks": workers})
    engine = HorovodEngine(cycle_time_ms=spec.cycle_time_ms, stall_timeout=spec.stall_timeout)
    launcher = BarrierLauncher(context, LaunchSettings.of(spec, claim=1), engine)
    trained = launcher.run(functools.partial(train, spec, dataset, claim=1), workers)[0]
    save_model(f"{spec.run_dir}/model", trained.state or {}, meta_of(spec, dataset))


ENGINES: Mapping[str, Callable[[SparkContext, Dataset, int, dict[str, Any]], None]] = {
    "horovod": horovod,
    "xgboost": xgboost,
}


if __name__ == "__main__":
    main()
