"""What is trained for: losses, and weights of rows and classes; in this process, one rank."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own idiom
from job_runs import run_in
from made_datasets import write_dataset
from small_trainings import (
    assert_weights,
    classification,
    numbers,
    plainly,
    regression,
    run,
    sorts,
    spec_of,
)

from train_horovod import launch_in
from trainyard import networks
from trainyard.errors import JobError, SettingError
from trainyard.horovod.objective import LOSSES, check_objective

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def test_two_ranks_validate_a_regression_exactly(spark: SparkSession, tmp_path: Path) -> None:
    weights = {"train": np.linspace(0.1, 3, 201).tolist(), "validation": [0.5, 2.0, 1.0] * 11}
    splits = {"train": numbers(201), "validation": numbers(33, seed=1)}
    dataset = write_dataset(
        tmp_path / "data", splits, classes=0, row_group_rows=20, weights=weights
    )
    spec = spec_of(tmp_path / "run", dataset, ranks=2, loss="huber", batch_size=16)
    result = launch_in(spark.sparkContext, spec, dataset, run_in(tmp_path / "run"))

    network = networks.build(spec.network, spec.network_params)
    assert result.state is not None
    network.load_state_dict(result.state)
    features, values = numbers(33, seed=1)
    with torch.inference_mode():
        found = network(torch.from_numpy(features)).squeeze(1).double()
    wanted, each = torch.from_numpy(values), torch.tensor(weights["validation"]).double()
    losses = LOSSES["huber"](found, wanted, reduction="none")
    best = result.best
    assert best.validation_loss == pytest.approx(((losses * each).sum() / each.sum()).item())
    assert best.validation_rmse == pytest.approx(F.mse_loss(found, wanted).sqrt().item())
    assert result.history[-1].loss < result.history[0].loss
    assert result.rows == {"train": 201, "validation": 33}


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
