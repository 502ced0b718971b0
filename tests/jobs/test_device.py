"""On which device a rank trains; tests/faults has Spark give GPUs to real executors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
import torch

from trainyard.errors import SettingError
from trainyard.horovod import device
from trainyard.scoring import place


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let Spark have given this task some GPUs, with a PyTorch that can use them or cannot."""

    def give(addresses: list[str], *, has_cuda: bool = True) -> None:
        gpus = {"gpu": SimpleNamespace(addresses=addresses)} if addresses else {}
        context = SimpleNamespace(resources=lambda: gpus)
        monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)

    return give


@pytest.mark.parametrize("wanted", ["auto", "gpu"])
def test_a_rank_trains_where_spark_says(given: Any, wanted: str) -> None:
    given(["3"])
    assert device.choose(wanted) == torch.device("cuda", 3)


def test_the_cpu_can_be_chosen_in_spite_of_a_gpu(given: Any) -> None:
    given(["3"])
    assert device.choose("cpu") == torch.device("cpu")


def test_without_a_gpu_auto_is_the_cpu(given: Any) -> None:
    given([])
    assert device.choose("auto") == torch.device("cpu")


def test_a_gpu_that_spark_did_not_give_is_refused(given: Any) -> None:
    given([])
    with pytest.raises(SettingError, match=r"'device' is 'gpu': Spark gave this task no"):
        device.choose("gpu")


def test_a_gpu_without_cuda_is_refused(given: Any) -> None:
    given(["0"], has_cuda=False)
    with pytest.raises(SettingError, match=r"Spark gave this task GPU 0, but PyTorch .* no CUDA"):
        device.choose("auto")


def test_a_gpu_that_has_no_number_is_refused(given: Any) -> None:
    given(["GPU-8f3a"])
    with pytest.raises(SettingError, match=r"Spark calls this task's GPU 'GPU-8f3a'"):
        device.choose("auto")


def test_a_driver_alone_scores_on_its_gpu(given: Any) -> None:
    """Spark gives a task no GPU in local mode."""
    given([])
    assert place("auto", is_alone=True) == torch.device("cuda")
    assert place("auto", is_alone=False) == place("cpu", is_alone=True) == torch.device("cpu")
    given(["3"])
    assert place("auto", is_alone=False) == torch.device("cuda", 3)
