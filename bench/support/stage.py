"""One training stage in a Spark session of its own: prints the seconds that it took.

    python bench/support/stage.py barrier|spark-run DATASET SETTINGS

The session is there before the clock starts; Spark's Python workers are not, as in a job.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable

from pyspark import SparkContext

from support.local import local_spark
from trainyard.barrier.engine import LaunchSettings
from trainyard.barrier.failures import first_line
from trainyard.barrier.launch import BarrierLauncher, Launcher, T
from trainyard.barrier.slots import check_slots
from trainyard.dataset import Dataset
from trainyard.errors import TransientError
from trainyard.horovod.launch import HorovodEngine
from trainyard.horovod.train import train
from trainyard.models import ModelMeta, save_model
from trainyard.session import spark_session
from trainyard.specs import TrainHorovod


class SparkRunLauncher:
    """Runs the ranks by `horovod.spark.run`: slower to start, and it names no cause of a failure.

    Args:
        context: the Spark context.
        settings: see `LaunchSettings`.
        engine: Horovod's settings.
    """

    def __init__(
        self, context: SparkContext, settings: LaunchSettings, engine: HorovodEngine
    ) -> None:
        self._context = context
        self._settings = settings
        self._engine = engine

    def run(self, fn: Callable[[], T], ranks: int) -> list[T]:
        """Call `fn` in processes that Spark's tasks start; see `Launcher`."""
        import horovod.spark

        settings, engine = self._settings, self._engine
        deadline = time.monotonic() + settings.start_timeout
        check_slots(self._context, ranks, deadline, engine.ranks_setting)

        def task() -> T:
            from trainyard.horovod import collective

            os.environ.update(engine.tuning())
            collective.init()
            return fn()

        try:
            return list(
                horovod.spark.run(
                    task,
                    num_proc=ranks,
                    start_timeout=settings.start_timeout,
                    use_gloo=True,
                    verbose=0,
                )
            )
        except Exception as error:
            raise TransientError(
                f"horovod.spark.run failed: {first_line(error)}.", "Read the ranks' output above."
            ) from error


KINDS: dict[str, Callable[[SparkContext, LaunchSettings, HorovodEngine], Launcher]] = {
    "barrier": BarrierLauncher,
    "spark-run": SparkRunLauncher,
}


def main() -> None:
    """Launch, train, have the weights; then store them."""
    kind, directory, settings = sys.argv[1:]
    dataset = Dataset.read(directory)
    local_spark(2)
    with tempfile.TemporaryDirectory() as run_dir, spark_session("bench") as spark:
        spec = TrainHorovod.from_mapping(
            {
                "run_dir": run_dir,
                "dataset": directory,
                "model_name": "bench",
                **json.loads(settings),
            }
        )
        launch = LaunchSettings.of(spec, claim=1)
        engine = HorovodEngine(cycle_time_ms=spec.cycle_time_ms, stall_timeout=spec.stall_timeout)
        launcher: Launcher = KINDS[kind](spark.sparkContext, launch, engine)
        began = time.monotonic()
        trained = launcher.run(functools.partial(train, spec, dataset, claim=1), spec.ranks)[0]
        launched = time.monotonic()
        save_model(f"{run_dir}/model", trained.state or {}, meta_of(spec, dataset))
        stored = time.monotonic()
    print(json.dumps({"launch": launched - began, "stage": stored - began}), flush=True)


def meta_of(spec: TrainHorovod, dataset: Dataset) -> ModelMeta:
    """What the job would record."""
    return ModelMeta(
        network=spec.network,
        network_params=spec.network_params,
        input_shape=spec.input_shape,
        features=dataset.features,
        key=dataset.key,
        label=dataset.label,
        classes=dataset.classes,
        width=dataset.width,
        dataset_fingerprint=dataset.fingerprint,
        settings=spec.to_mapping(),
        versions={},
    )


if __name__ == "__main__":
    main()
