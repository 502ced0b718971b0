"""On which device a worker trains: the GPU that Spark gave its task, or the CPU."""

from __future__ import annotations

import xgboost as xgb

from trainyard.barrier.gpu import assigned_gpu
from trainyard.errors import SettingError


def choose(device: str) -> str:
    """XGBoost's name of the device for a setting of `auto`, `cpu` or `gpu`.

    Raises:
        SettingError: a GPU is wanted or was given, and cannot be used.
    """
    given = None if device == "cpu" else assigned_gpu()
    if given is None:
        if device == "gpu":
            raise SettingError(
                "device",
                device,
                "Spark gave this worker's task no GPU",
                "Set spark.executor.resource.gpu.amount and spark.task.resource.gpu.amount to 1, "
                "or device to cpu.",
            )
        return "cpu"
    if not given.isdigit():
        raise SettingError(
            "device",
            device,
            f"Spark calls this worker's GPU {given!r}, and XGBoost knows GPUs by number",
            "Let the discovery script give indexes, as Spark's own getGpusResources.sh does.",
        )
    if not xgb.build_info()["USE_CUDA"]:
        raise SettingError(
            "device",
            device,
            f"Spark gave this worker GPU {given}, but XGBoost {xgb.__version__} has no CUDA",
            "Install a CUDA build of XGBoost where the workers run, or set device to cpu.",
        )
    return f"cuda:{given}"
