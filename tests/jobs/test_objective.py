"""What is trained for: losses, weights, schedules, early stopping; in this process, one rank."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own idiom
from made_datasets import write_dataset

from trainyard import networks, rundir
from trainyard.dataset import Dataset
from trainyard.errors import JobError, SettingError
from trainyard.horovod.history import Epoch, TrainResult, has_stalled
from trainyard.horovod.launch import InProcessLauncher
from trainyard.horovod.loader import Loader, Plan
from trainyard.horovod.objective import LOSSES, check_objective
from trainyard.horovod.schedule import factor
from trainyard.horovod.train import train
from trainyard.specs import TrainHorovod

WIDTH = 4


def numbers(rows: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows and a value of each that is linear in them, but for some noise."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    values = features @ np.array([1.0, -2.0, 0.5, 3.0]) + 1 + 0.1 * rng.normal(size=rows)
    return features, values.astype(np.float64)


def sorts(rows: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows of three classes, of which the last is rare."""
    features, values = numbers(rows, seed)
    return features, np.digitize(values, [0.0, 6.0]).astype(np.int64)


def regression(directory: Path, **more: Any) -> Dataset:
    splits = {"train": numbers(200), "validation": numbers(50, seed=1)}
    return write_dataset(directory, splits, classes=0, row_group_rows=64, **more)


def classification(directory: Path, **more: Any) -> Dataset:
    splits = {"train": sorts(200), "validation": sorts(50, seed=1)}
    return write_dataset(directory, splits, classes=3, row_group_rows=64, **more)


def spec_of(run_dir: Path, dataset: Dataset, **settings: Any) -> TrainHorovod:
    given: dict[str, Any] = {
        "run_dir": str(run_dir),
        "dataset": dataset.directory,
        "model_name": "test",
        "network": "torch.nn:Linear",
        "network_params": {"in_features": WIDTH, "out_features": dataset.outputs},
        "input_shape": [WIDTH],
        "ranks": 1,
        "epochs": 3,
        "batch_size": 32,
        "learning_rate": 0.005,
        **settings,
    }
    return TrainHorovod.from_mapping(given)


def run(spec: TrainHorovod, dataset: Dataset) -> TrainResult:
    check_objective(spec, dataset)
    [result] = InProcessLauncher().run(functools.partial(train, spec, dataset, claim=1), 1)
    return result


def plainly(
    spec: TrainHorovod, dataset: Dataset, weights: Sequence[float] | None = None
) -> torch.nn.Module:
    """The network after the same epochs of plain PyTorch; `weights` of the classes, if any."""
    torch.manual_seed(spec.seed)
    network = networks.build(spec.network, spec.network_params)
    optimizer = torch.optim.SGD(network.parameters(), lr=spec.learning_rate, momentum=0.9)
    plan = Plan(rows=dataset.rows("train"), size=1, batch_size=spec.batch_size)
    loader = Loader(dataset, "train", plan, 0, streaming=True)
    for epoch in range(1, spec.epochs + 1):
        for batch in loader.shuffled(seed=spec.seed, epoch=epoch):
            optimizer.zero_grad()
            scores = network(batch.features)
            if dataset.task == "regression":
                loss = LOSSES[spec.loss](scores.squeeze(1), batch.labels, reduction="none")
                each = torch.ones(len(batch)) if batch.weights is None else batch.weights
            else:
                loss = F.cross_entropy(scores, batch.labels, reduction="none")
                each = torch.tensor(weights or [1.0] * 3)[batch.labels]
            torch.autograd.backward((loss * each).sum() / each.sum())
            if spec.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(network.parameters(), spec.clip_norm)
            optimizer.step()
    return network


def assert_weights(result: TrainResult, network: torch.nn.Module) -> None:
    """The kept weights are these; the tests' losses fall, so that the last epoch is the best."""
    assert result.best.number == len(result.history)
    assert result.state is not None
    for name, value in network.state_dict().items():
        assert torch.allclose(result.state[name], value, atol=1e-5), name


@pytest.mark.parametrize("loss", ["mse", "l1", "huber"])
def test_regression_learns_as_plain_pytorch_does(tmp_path: Path, loss: str) -> None:
    dataset = regression(tmp_path / "data")
    spec = spec_of(tmp_path / "run", dataset, loss=loss)
    result = run(spec, dataset)
    network = plainly(spec, dataset)
    assert_weights(result, network)
    features, values = numbers(50, seed=1)
    with torch.inference_mode():
        found = network(torch.from_numpy(features)).squeeze(1).double()
    wanted = torch.from_numpy(values)
    rmse = F.mse_loss(found, wanted).sqrt().item()
    assert result.best.validation_rmse == pytest.approx(rmse, rel=1e-4)
    assert result.best.validation_loss == pytest.approx(
        LOSSES[loss](found, wanted).item(), rel=1e-4
    )
    assert result.best.accuracy is None
    assert "accuracy" not in result.best.figures()
    assert "validation_rmse" in result.best.figures()


def test_auto_is_mse_for_a_regression(tmp_path: Path) -> None:
    dataset = regression(tmp_path / "data")
    auto = run(spec_of(tmp_path / "a", dataset), dataset)
    mse = run(spec_of(tmp_path / "b", dataset, loss="mse"), dataset)
    assert auto.best.loss == mse.best.loss


def test_labels_of_a_regression_may_be_whole_numbers(tmp_path: Path) -> None:
    features, values = numbers(64)
    whole = {"train": (features, np.round(values).astype(np.int64))}
    dataset = write_dataset(tmp_path / "data", whole, classes=0)
    result = run(spec_of(tmp_path / "run", dataset, epochs=20), dataset)
    assert result.best.rmse is not None
    assert result.best.rmse < 1.0


def test_rows_count_by_their_weight(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights = {"train": rng.uniform(0, 5, 200).tolist(), "validation": rng.uniform(0, 5, 50)}
    dataset = regression(tmp_path / "data", weights=weights)
    spec = spec_of(tmp_path / "run", dataset, loss="mse")
    result = run(spec, dataset)
    network = plainly(spec, dataset)
    assert_weights(result, network)
    features, values = numbers(50, seed=1)
    with torch.inference_mode():
        found = network(torch.from_numpy(features)).squeeze(1).double().numpy()
    judged = np.average((found - values) ** 2, weights=weights["validation"])
    assert result.best.validation_loss == pytest.approx(judged, rel=1e-4)


def test_weights_that_add_up_to_nothing_are_refused(tmp_path: Path) -> None:
    weights = {"train": [0.0] * 200, "validation": [1.0] * 50}
    dataset = regression(tmp_path / "data", weights=weights)
    with pytest.raises(JobError) as caught:
        run(spec_of(tmp_path / "run", dataset), dataset)
    assert caught.value.cause == "the weights of the train split's 200 rows add up to 0."
    assert "'counts'" in caught.value.fix


@pytest.mark.parametrize(("value", "problem"), [(-1.0, "negative"), (math.nan, "not finite")])
def test_weights_that_are_no_weights_are_refused(
    tmp_path: Path, value: float, problem: str
) -> None:
    dataset = regression(
        tmp_path / "data", weights={"train": [1.0, value] * 100, "validation": [1.0] * 50}
    )
    with pytest.raises(JobError, match=f"column 'weight' has .*{problem}"):
        run(spec_of(tmp_path / "run", dataset), dataset)


@pytest.mark.parametrize("given", ["balanced", "0.5,1,4"])
def test_classes_count_by_their_weight(tmp_path: Path, given: str) -> None:
    dataset = classification(tmp_path / "data")
    spec = spec_of(tmp_path / "run", dataset, class_weights=given)
    result = run(spec, dataset)
    rows = np.bincount(sorts(200)[1])
    weights = (200 / (3 * rows)).tolist() if given == "balanced" else [0.5, 1.0, 4.0]
    network = plainly(spec, dataset, weights)
    assert_weights(result, network)
    features, labels = sorts(50, seed=1)
    with torch.inference_mode():
        scores = network(torch.from_numpy(features))
    judged = F.cross_entropy(scores, torch.from_numpy(labels), weight=torch.tensor(weights).float())
    assert result.best.validation_loss == pytest.approx(judged.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("task", "settings", "cause", "fix"),
    [
        ("regression", {"loss": "cross_entropy"}, "made for regression", "auto, mse, l1, huber"),
        ("classification", {"loss": "mse"}, "made for classification", "auto, cross_entropy"),
        ("regression", {"class_weights": "balanced"}, "has no classes", "Set it to none"),
        ("classification", {"class_weights": "1,2"}, "2 numbers, but the dataset has 3", "0, 1, 2"),
    ],
)
def test_refuses_an_objective_that_does_not_suit_the_dataset(
    tmp_path: Path, task: str, settings: dict[str, Any], cause: str, fix: str
) -> None:
    dataset = {"regression": regression, "classification": classification}[task](tmp_path / "data")
    with pytest.raises(SettingError) as caught:
        check_objective(spec_of(tmp_path, dataset, **settings), dataset)
    assert caught.value.name == next(iter(settings))
    assert cause in caught.value.cause
    assert fix in caught.value.fix


@pytest.mark.parametrize("value", ["1,x", "0,0", "-1,2", "inf,1", "nan,1", ""])
def test_refuses_class_weights_that_are_no_weights(tmp_path: Path, value: str) -> None:
    dataset = classification(tmp_path / "data")
    with pytest.raises(SettingError, match="'class_weights' is"):
        spec_of(tmp_path, dataset, class_weights=value)


def test_refuses_a_warm_up_without_end(tmp_path: Path) -> None:
    dataset = classification(tmp_path / "data")
    with pytest.raises(SettingError, match=r"'warmup_epochs' is 3.0: there are only 3 epochs"):
        spec_of(tmp_path, dataset, epochs=3, warmup_epochs=3)


def test_clips_as_torch_does(tmp_path: Path) -> None:
    dataset = regression(tmp_path / "data")
    spec = spec_of(tmp_path / "run", dataset, loss="mse", clip_norm=0.5)
    result = run(spec, dataset)
    assert_weights(result, plainly(spec, dataset))
    unclipped = run(spec_of(tmp_path / "free", dataset, loss="mse"), dataset)
    assert unclipped.history[0].loss < result.history[0].loss


def test_passes_of_a_step_add_up_to_one_batch(tmp_path: Path) -> None:
    dataset = regression(tmp_path / "data")
    whole = run(spec_of(tmp_path / "a", dataset, batch_size=40), dataset)
    parts = run(
        spec_of(tmp_path / "b", dataset, batch_size=20, backward_passes_per_step=2), dataset
    )
    assert [e.loss for e in parts.history] == pytest.approx([e.loss for e in whole.history])
    assert whole.state is not None
    assert parts.state is not None
    assert torch.allclose(whole.state["weight"], parts.state["weight"], atol=1e-5)


def test_a_last_step_of_fewer_passes_is_still_a_mean(tmp_path: Path) -> None:
    # 200 rows are 5 batches of 40: steps of 2, 2 and 1.
    dataset = regression(tmp_path / "data")
    spec = spec_of(tmp_path / "run", dataset, batch_size=40, backward_passes_per_step=2)
    assert (
        run(spec, dataset).history[-1].loss
        < run(
            spec_of(tmp_path / "one", dataset, batch_size=40, backward_passes_per_step=5), dataset
        )
        .history[-1]
        .loss
    )


def test_compressed_gradients_learn_nearly_the_same(tmp_path: Path) -> None:
    dataset = regression(tmp_path / "data")
    full = run(spec_of(tmp_path / "a", dataset, epochs=10), dataset)
    half = run(spec_of(tmp_path / "b", dataset, epochs=10, compression="fp16"), dataset)
    assert half.best.validation_loss == pytest.approx(full.best.validation_loss, rel=0.05)
    assert half.best.validation_loss != full.best.validation_loss


def test_a_gradient_too_large_for_16_bits_is_named(tmp_path: Path) -> None:
    features, values = numbers(64)
    dataset = write_dataset(tmp_path / "data", {"train": (features, values * 1e6)}, classes=0)
    with pytest.raises(SettingError, match=r"'compression' is 'fp16': a gradient exceeds 65504"):
        run(spec_of(tmp_path / "run", dataset, compression="fp16"), dataset)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"schedule": "constant"}, [1.0, 1.0, 1.0, 1.0]),
        ({"schedule": "linear"}, [1.0, 0.75, 0.5, 0.25]),
        ({"schedule": "cosine"}, [1.0, 0.85355339, 0.5, 0.14644661]),
        ({"schedule": "step", "step_epochs": 2, "step_factor": 0.1}, [1.0, 1.0, 0.1, 0.1]),
        ({"schedule": "linear", "warmup_epochs": 2}, [0.25, 0.75, 1.0, 0.5]),
    ],
)
def test_schedules(tmp_path: Path, settings: dict[str, Any], wanted: list[float]) -> None:
    dataset = classification(tmp_path / "data")
    spec = spec_of(tmp_path, dataset, epochs=4, **settings)
    step = 0.5 if "warmup_epochs" in settings else 1.0
    assert [factor(spec, epoch, step) for epoch in range(4)] == pytest.approx(wanted)


def test_the_schedule_is_what_steps_are_taken_with(tmp_path: Path) -> None:
    """A rate that falls to a hundredth after an epoch leaves the weights nearly where they are."""
    dataset = regression(tmp_path / "data")
    plain = {"optimizer_params": {}, "batch_size": 200, "epochs": 1}
    one = run(spec_of(tmp_path / "a", dataset, **plain), dataset)
    fallen = {**plain, "epochs": 2, "schedule": "step", "step_epochs": 1, "step_factor": 1e-7}
    two = run(spec_of(tmp_path / "b", dataset, **fallen), dataset)
    assert one.state is not None
    assert two.state is not None
    assert torch.allclose(one.state["weight"], two.state["weight"], atol=1e-5)
    assert two.history[1].loss < two.history[0].loss


def history_of(losses: Sequence[float]) -> list[Epoch]:
    return [
        Epoch(number=n, loss=1.0, validation_loss=loss, rows_per_second=1.0)
        for n, loss in enumerate(losses, start=1)
    ]


@pytest.mark.parametrize(
    ("losses", "patience", "min_delta", "stalled"),
    [
        ([3.0, 2.0, 2.0, 2.0], 2, 0.0, True),
        ([3.0, 2.0, 2.0], 2, 0.0, False),
        ([3.0, 2.0, 2.5, 1.9, 2.5], 2, 0.0, False),
        ([3.0, 2.7, 2.4, 2.1], 2, 0.5, False),
        ([3.0, 2.9, 2.8], 2, 0.5, True),
        ([3.0] * 50, 0, 0.0, False),
    ],
)
def test_patience(losses: list[float], patience: int, min_delta: float, stalled: bool) -> None:
    assert has_stalled(history_of(losses), patience, min_delta) == stalled


def test_stops_early_and_keeps_the_best(tmp_path: Path) -> None:
    dataset = regression(tmp_path / "data")
    settings = {"epochs": 60, "patience": 2, "min_delta": 0.01, "checkpoint_every": 7}
    spec = spec_of(tmp_path / "run", dataset, **settings)
    result = run(spec, dataset)
    last = len(result.history)
    assert 3 < last < 60
    texts = [e["text"] for e in rundir.read_events(spec.run_dir, {}) if e["kind"] == "note"]
    assert texts == [f"stopped after epoch {last} of 60: the loss did not get better in 2 epochs"]
    again = run(spec, dataset)
    assert (again.resumed, again.history) == (last, result.history)


def test_everything_together_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"train": np.linspace(0.1, 3, 200).tolist(), "validation": [1.0] * 50}
    dataset = classification(tmp_path / "data", weights=weights)
    settings = {
        "optimizer": "Adam",
        "optimizer_params": {"betas": [0.8, 0.99]},
        "schedule": "cosine",
        "warmup_epochs": 1.5,
        "class_weights": "balanced",
        "clip_norm": 0.5,
        "backward_passes_per_step": 2,
        "compression": "fp16",
        "patience": 5,
        "epochs": 5,
        "checkpoint_every": 2,
    }
    whole = run(spec_of(tmp_path / "whole", dataset, **settings), dataset)
    spec = spec_of(tmp_path / "stopped", dataset, **settings)
    with monkeypatch.context() as patched:
        patched.setattr(
            "trainyard.horovod.train.schedule.factor",
            lambda spec, epoch, step: _stop() if epoch > 3.5 else factor(spec, epoch, step),
        )
        with pytest.raises(KeyboardInterrupt):
            run(spec, dataset)
    resumed = run(spec, dataset)
    assert resumed.resumed == 2
    for one, other in zip(resumed.history, whole.history, strict=True):
        assert one.figures() | {"rows_per_second": 0} == other.figures() | {"rows_per_second": 0}
    assert resumed.state is not None
    assert whole.state is not None
    assert all(torch.equal(value, whole.state[name]) for name, value in resumed.state.items())


def test_a_gpu_that_spark_did_not_give_is_refused(tmp_path: Path) -> None:
    dataset = classification(tmp_path / "data")
    with pytest.raises(SettingError, match=r"'device' is 'gpu': Spark gave this rank's task no"):
        run(spec_of(tmp_path / "run", dataset, device="gpu"), dataset)


def test_a_network_with_shared_and_unused_weights_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared_network.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.one, self.last = nn.Linear(4, 4), nn.Linear(4, 1)\n"
        "        self.two, self.unused = self.one, nn.Linear(2, 2)\n"
        "    def forward(self, rows):\n"
        "        return self.last(self.two(self.one(rows).relu()))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    dataset = regression(tmp_path / "data")
    spec = spec_of(tmp_path / "run", dataset, network="shared_network:Net", network_params={})
    result = run(spec, dataset)
    assert result.history[-1].loss < result.history[0].loss
    assert result.state is not None
    assert torch.equal(result.state["one.weight"], result.state["two.weight"])


def _stop() -> float:
    raise KeyboardInterrupt
