"""How steps are taken: clipping, accumulation, compression, schedules, early stopping."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_datasets import write_dataset
from small_trainings import (
    assert_weights,
    classification,
    numbers,
    plainly,
    regression,
    run,
    spec_of,
)

from trainyard import rundir
from trainyard.errors import SettingError
from trainyard.horovod.history import Epoch, has_stalled
from trainyard.horovod.schedule import factor


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
