"""The training in this process, with the real Horovod and one rank; test_launch has two."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own idiom
from digit_trainings import checkpoint_names, few_digits, losses, run, same_weights, spec_of
from made_datasets import some_digits, write_dataset

from trainyard import rundir
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.horovod import optimizer
from trainyard.horovod.history import Epoch, TrainResult
from trainyard.networks.mnist import ConvNet


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return few_digits(tmp_path_factory.mktemp("digits"))


def judge(result: TrainResult) -> tuple[float, float]:
    """Loss and accuracy of the kept weights on the validation rows, computed plainly."""
    network = ConvNet().eval()
    network.load_state_dict(result.state or {})
    features, labels = some_digits(600, 700)
    wanted = torch.from_numpy(labels)
    with torch.inference_mode():
        scores = network(torch.from_numpy(features).view(-1, 1, 28, 28)).double()
    right = (scores.argmax(1) == wanted).double().mean()
    return F.cross_entropy(scores, wanted).item(), right.item()


def test_learns(tmp_path: Path, dataset: Dataset) -> None:
    result = run(spec_of(tmp_path, dataset, epochs=8), dataset)
    assert result.rows == {"train": 600, "validation": 100}
    assert [epoch.number for epoch in result.history] == list(range(1, 9))
    assert result.history[-1].loss < result.history[0].loss
    assert result.best.validation_accuracy is not None
    assert result.best.validation_accuracy > 0.7


def test_reports_the_loss_of_the_kept_weights_exactly(tmp_path: Path, dataset: Dataset) -> None:
    spec = spec_of(tmp_path, dataset, batch_size=30)
    result = run(spec, dataset)
    loss, accuracy = judge(result)
    assert result.best.validation_loss == pytest.approx(loss, rel=1e-5)
    assert result.best.validation_accuracy == pytest.approx(accuracy)


def test_streaming_and_memory_learn_alike(tmp_path: Path, dataset: Dataset) -> None:
    streamed = run(spec_of(tmp_path / "a", dataset, streaming=True), dataset)
    held = run(spec_of(tmp_path / "b", dataset, streaming=False), dataset)
    assert losses(held) == pytest.approx(losses(streamed), rel=0.3)


def test_seed_decides_everything(tmp_path: Path, dataset: Dataset) -> None:
    one = run(spec_of(tmp_path / "a", dataset, seed=7, epochs=2), dataset)
    same = run(spec_of(tmp_path / "b", dataset, seed=7, epochs=2), dataset)
    other = run(spec_of(tmp_path / "c", dataset, seed=8, epochs=2), dataset)
    assert losses(one) == losses(same)
    assert same_weights(one, same)
    assert losses(one) != losses(other)


def test_keeps_the_best_epoch() -> None:
    history = tuple(
        Epoch(
            number=number,
            loss=1.0 / number,
            accuracy=0.5,
            validation_loss=loss,
            validation_accuracy=0.5,
            rows_per_second=1.0,
        )
        for number, loss in enumerate([0.9, 0.4, 0.4, 0.7], start=1)
    )
    result = TrainResult(history=history, state=None, rows={}, resumed=0)
    assert result.best.number == 2
    blind = [dataclasses.replace(epoch, validation_loss=None) for epoch in history]
    assert dataclasses.replace(result, history=tuple(blind)).best.number == 4


def test_returns_the_best_weights_and_not_the_last(tmp_path: Path, dataset: Dataset) -> None:
    # At this rate the loss swings, so that the last epoch is not the best.
    spec = spec_of(tmp_path, dataset, epochs=12, learning_rate=0.25, seed=1)
    result = run(spec, dataset)
    assert result.best.number < 12, "choose another seed or rate: the last epoch was the best"
    loss, _ = judge(result)
    assert result.best.validation_loss == pytest.approx(loss, rel=1e-5)


def test_works_without_validation_rows(tmp_path: Path) -> None:
    blind = write_dataset(tmp_path / "data", {"train": some_digits(0, 200)}, classes=10)
    result = run(spec_of(tmp_path / "run", blind), blind)
    assert result.best.validation_loss is None
    assert result.best.validation_accuracy is None
    assert result.best.loss == min(losses(result))


def test_a_loss_that_is_not_finite_stops_and_is_named(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(JobError) as caught:
        run(spec_of(tmp_path, dataset, learning_rate=1e12), dataset)
    assert "the training loss became" in caught.value.cause
    assert "in epoch 1, step" in caught.value.cause
    assert "learning_rate" in caught.value.fix
    assert checkpoint_names(tmp_path) == []


def test_tells_progress(tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.horovod.train.PROGRESS_SECONDS", 0.0)
    result = run(spec_of(tmp_path, dataset, epochs=2), dataset)
    events = rundir.read_events(str(tmp_path), {})
    progress = [event for event in events if event["kind"] == "progress"]
    assert {event["total"] for event in progress} == {2}
    assert [event["done"] for event in progress if event["done"] % 1 == 0] == [1, 1, 2, 2]
    assert len(progress) == 2 * (10 + 1)
    assert progress[-1]["figures"] == pytest.approx(result.history[-1].figures())
    metrics = [event["values"] for event in events if event["kind"] == "metric"]
    assert [values["loss"] for values in metrics] == losses(result)
    ranks = [event for event in events if event["kind"] == "ranks"]
    assert [event["step"] for event in ranks] == [1, 2]
    (rate,), (memory,) = ranks[-1]["rows_per_second"], ranks[-1]["memory"]
    assert rate == pytest.approx(result.history[-1].rows_per_second, rel=1e-6)
    assert 20e6 < memory < 20e9


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
def test_optimizer_steps_as_torch_does(tmp_path: Path, dataset: Dataset, name: str) -> None:
    settings = {"learning_rate": 0.05, "optimizer_params": {"weight_decay": 0.01}}
    spec = spec_of(tmp_path, dataset, optimizer=name, **settings)
    torch.manual_seed(0)
    ours, theirs = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    made = optimizer.make(spec, ours.parameters(), 1)
    plain = getattr(torch.optim, name)(theirs.parameters(), lr=0.05, weight_decay=0.01)
    for _ in range(3):
        rows = torch.randn(4, 5)
        for network in (ours, theirs):
            network.zero_grad()
            network(rows).square().sum().backward()
        optimizer.step(made)
        plain.step()
    assert torch.equal(ours.weight, theirs.weight)


def test_learning_rate_is_scaled_by_ranks(tmp_path: Path, dataset: Dataset) -> None:
    parameters = list(torch.nn.Linear(2, 2).parameters())
    scaled = optimizer.make(spec_of(tmp_path, dataset, learning_rate=0.1), parameters, 4)
    spec = spec_of(tmp_path, dataset, learning_rate=0.1, scale_learning_rate=False)
    plain = optimizer.make(spec, parameters, 4)
    assert scaled.param_groups[0]["lr"] == pytest.approx(0.4)
    assert plain.param_groups[0]["lr"] == pytest.approx(0.1)


def test_training_leaves_the_compiler_out(tmp_path: Path, dataset: Dataset) -> None:
    program = (
        "import sys, functools;"
        "from trainyard.dataset import Dataset; from trainyard.specs import TrainHorovod;"
        "from trainyard.horovod.launch import InProcessLauncher;"
        "from trainyard.horovod.train import train;"
        f"spec = TrainHorovod(run_dir={str(tmp_path)!r}, dataset={dataset.directory!r}, ranks=1,"
        " epochs=1, model_name='test');"
        "fn = functools.partial(train, spec, Dataset.read(spec.dataset), claim=1);"
        "InProcessLauncher().run(fn, 1);"
        "assert not {'torch._dynamo', 'airflow', 'mlflow'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_batch_norm_is_validated_as_it_is_kept(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "normed_network.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 10))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = run(spec_of(tmp_path / "run", dataset, network="normed_network:Net"), dataset)
    assert result.state is not None
    assert result.state["1.num_batches_tracked"].item() > 0
    assert np.isfinite(result.best.validation_loss or np.nan)
