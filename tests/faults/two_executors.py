"""A program of two ranks on two executors, one GPU each; prints what came of each as JSON.

spark-submit --master 'local-cluster[2,1,1024]' two_executors.py DATASET DIRECTORY
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from job_runs import notes, run_in

from train_horovod import launch_in
from trainyard.barrier.engine import LaunchSettings
from trainyard.barrier.launch import BarrierLauncher
from trainyard.dataset import Dataset
from trainyard.horovod.launch import HorovodEngine
from trainyard.session import spark_session
from trainyard.specs import TrainHorovod


def given() -> dict[str, Any]:
    """The GPU that a rank has, were PyTorch built for it."""
    import horovod.torch as hvd
    import psutil
    import torch

    from trainyard.barrier.gpu import assigned_gpu
    from trainyard.horovod.device import choose

    torch.cuda.is_available = lambda: True
    executor = next(p.pid for p in psutil.Process().parents() if p.name() == "java")
    return {
        "rank": hvd.rank(),
        "address": assigned_gpu(),
        "device": str(choose("auto")),
        "executor": executor,
    }


def trained(context: Any, dataset: Dataset, directory: Path, deaths: list[Any]) -> dict[str, Any]:
    """What a training came to, in which the executors of some ranks are killed."""
    directory.mkdir()
    params = {"width": dataset.width, "classes": 1, "deaths": deaths, "memory": str(directory)}
    spec = TrainHorovod(
        run_dir=str(directory),
        dataset=dataset.directory,
        model_name="test",
        network="dying_networks:TakingItsExecutor",
        network_params=params,
        input_shape=(dataset.width,),
        epochs=3,
        batch_size=25,
        device="cpu",
        relaunches=1,
    )
    result = launch_in(context, spec, dataset, run_in(directory))
    assert result.state is not None
    weights = b"".join(value.numpy().tobytes() for value in result.state.values())
    return {
        "history": [{**epoch.figures(), "rows_per_second": 0} for epoch in result.history],
        "weights": hashlib.sha256(weights).hexdigest(),
        "resumed": result.resumed,
        "notes": notes(directory),
    }


def main(dataset: Dataset, directory: Path) -> dict[str, Any]:
    """All that the tests look at."""
    with spark_session("two executors") as spark:
        context = spark.sparkContext
        engine = HorovodEngine(cycle_time_ms=1, stall_timeout=60)
        settings = LaunchSettings(
            run_dir=str(directory), claim=1, start_timeout=60, stall_timeout=60
        )
        gpus = BarrierLauncher(context, settings, engine).run(given, 2)
        undisturbed = trained(context, dataset, directory / "undisturbed", [])
        # The second of three epochs, of four steps each.
        lost = trained(context, dataset, directory / "lost", [(1, "forward", 6)])
    return {"gpus": gpus, "undisturbed": undisturbed, "lost": lost}


if __name__ == "__main__":
    found = main(Dataset.read(sys.argv[1]), Path(sys.argv[2]))
    Path(sys.argv[2], "found.json").write_text(json.dumps(found))
