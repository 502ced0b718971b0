"""On which device a network works: the GPU that Spark gave its task, or the CPU."""

from __future__ import annotations

import torch

from trainyard.barrier.gpu import assigned_gpu
from trainyard.errors import SettingError


def choose(device: str) -> torch.device:
    """The device for a setting of `auto`, `cpu` or `gpu`.

    Raises:
        SettingError: a GPU is wanted or was given, and cannot be used.
    """
    given = None if device == "cpu" else assigned_gpu()
    if given is None:
        if device == "gpu":
            raise SettingError(
                "device",
                device,
                "Spark gave this task no GPU",
                "Set spark.executor.resource.gpu.amount and spark.task.resource.gpu.amount to 1, "
                "or device to cpu.",
            )
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise SettingError(
            "device",
            device,
            f"Spark gave this task GPU {given}, but PyTorch {torch.__version__} finds no CUDA",
            "Install a CUDA build of PyTorch where the tasks run, or set device to cpu.",
        )
    if not given.isdigit():
        raise SettingError(
            "device",
            device,
            f"Spark calls this task's GPU {given!r}, and PyTorch knows GPUs by number",
            "Let the discovery script give indexes, as Spark's own getGpusResources.sh does.",
        )
    return torch.device("cuda", int(given))
