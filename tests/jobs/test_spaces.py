"""Spaces of a search: read, and refused where a contract does not allow an end."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trainyard.errors import SettingError
from trainyard.spaces import Dimension
from trainyard.specs import TrainHorovod, TrainXGBoost, Tune

PLACE = {"run_dir": "/r", "dataset": "/d"}


def tune(**settings: Any) -> Tune:
    return Tune.from_mapping({**PLACE, **settings})


def test_ranges_and_choices_are_read() -> None:
    space = {
        "learning_rate": {"low": 1e-3, "high": 1, "log": True},
        "epochs": {"low": 2.0, "high": 10, "step": 4},
        "schedule": {"choices": ["cosine", "linear"]},
        "optimizer_params.weight_decay": {"low": 0, "high": 0.5},
    }
    rate, epochs, schedule, decay = tune(space=space).dimensions
    assert rate == Dimension(name="learning_rate", low=1e-3, high=1.0, log=True)
    assert epochs == Dimension(name="epochs", low=2, high=10, step=4, whole=True)
    assert isinstance(epochs.low, int)
    assert schedule.choices == ("cosine", "linear")
    assert (decay.low, decay.high, decay.whole) == (0.0, 0.5, False)


@pytest.mark.parametrize("engine", ["horovod", "xgboost"])
def test_the_contract_has_ranges_of_its_own(engine: str) -> None:
    found = {dimension.name: dimension for dimension in tune(engine=engine).dimensions}
    assert "learning_rate" in found
    assert len(found) >= 3
    narrowed = tune(engine=engine, space={"learning_rate": {}}).dimensions
    assert narrowed == (found["learning_rate"],)


def test_a_member_is_tried_beside_the_others() -> None:
    spec = tune(space={"optimizer_params.weight_decay": {"low": 0.0, "high": 0.5}})
    trial = spec.trial("/t", {"optimizer_params.weight_decay": 0.25})
    assert isinstance(trial, TrainHorovod)
    assert trial.optimizer_params == {"momentum": 0.9, "weight_decay": 0.25}
    spec = tune(engine="xgboost", fixed={"booster_params": {"lambda": 2.0}}, seed=5)
    trees = spec.trial("/t", {"booster_params.subsample": 0.5, "max_depth": 3})
    assert isinstance(trees, TrainXGBoost)
    assert trees.booster_params == {"lambda": 2.0, "subsample": 0.5}
    assert (trees.run_dir, trees.num_workers, trees.max_depth, trees.seed) == ("/t", 1, 3, 5)
    chosen = spec.chosen({"booster_params.subsample": 0.5, "max_depth": 3})
    assert chosen == {"booster_params": {"lambda": 2.0, "subsample": 0.5}, "max_depth": 3}


def test_what_is_fixed_is_not_tried() -> None:
    spec = tune(fixed={"learning_rate": 0.1})
    assert {dimension.name for dimension in spec.dimensions} == {"batch_size", "schedule"}
    spec = tune(
        engine="xgboost",
        fixed={"max_depth": 3, "booster_params": '{"colsample_bytree": 0.5}'},
    )
    names = {dimension.name for dimension in spec.dimensions}
    assert names == {"learning_rate", "booster_params.min_child_weight"}
    trial = spec.trial("/t", {"booster_params.min_child_weight": 2.0})
    assert isinstance(trial, TrainXGBoost)
    assert trial.booster_params == {"colsample_bytree": 0.5, "min_child_weight": 2.0}


def test_a_member_is_real_where_it_is_known_to_be() -> None:
    """However its ends are written: a form writes 1.0 as 1."""
    ends = {"low": 0, "high": 4}
    spec = tune(space={"optimizer_params.weight_decay": ends, "network_params.layers": ends})
    assert [dimension.whole for dimension in spec.dimensions] == [False, True]
    space = {"booster_params.gamma": ends, "booster_params.max_leaves": ends}
    spec = tune(engine="xgboost", space=space)
    assert [dimension.whole for dimension in spec.dimensions] == [False, True]


def test_what_a_plain_metric_compares_may_be_tried() -> None:
    space = {"loss": {"choices": ["mse", "l1"]}}
    assert len(tune(space=space, metric="validation_rmse").dimensions) == 1
    space = {"objective": {"choices": ["reg:squarederror", "reg:absoluteerror"]}}
    assert len(tune(engine="xgboost", space=space, metric="validation_mae").dimensions) == 1


@pytest.mark.parametrize(
    ("entry", "high", "size"),
    [
        ({"low": 1, "high": 10, "step": 4}, 9, 3),
        ({"low": 0.1, "high": 0.35, "step": 0.1}, 0.3, 3),
        ({"low": 1, "high": 64, "log": True}, 64, 64),
        ({"low": 0.5, "high": 2}, 2.0, math.inf),
        ({"low": 0.5, "high": 0.5}, 0.5, 1),
    ],
)
def test_a_range_ends_where_its_steps_do(entry: dict[str, Any], high: float, size: float) -> None:
    [dimension] = tune(space={"network_params.a": entry}).dimensions
    assert dimension.high == high
    assert dimension.size == size
    assert tune(space={"schedule": {"choices": ["step", "cosine"]}}).dimensions[0].size == 2


def test_choices_may_be_mappings() -> None:
    choices = [{}, {"momentum": 0.5}]
    [dimension] = tune(space={"optimizer_params": {"choices": choices}}).dimensions
    assert dimension.labels == {"{}": {}, '{"momentum": 0.5}': {"momentum": 0.5}}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("horovod", {"learning_rate": {"low": 0, "high": 1}}, r"'learning_rate'.*too small"),
    ("horovod", {"epochs": {"low": 1, "high": 200_000}}, "200000.*too large"),
    ("horovod", {"batch_size": {"low": 1.5, "high": 3}}, "whole number"),
    ("horovod", {"optimizer": {"choices": ["SGD", "Sgd"]}}, "'Sgd'.*known choice"),
    ("horovod", {"optimizer": {"choices": ["SGD", "Adam"]}}, "Adam has no parameter 'momentum'"),
    ("horovod", {"optimizer": {"low": 1, "high": 2}}, "no number"),
    ("horovod", {"warmup_epochs": {"low": 0, "high": 30}}, "30.*only 30 epochs"),
    ("horovod", {"learnin_rate": {}}, "no setting.*'learning_rate'"),
    ("horovod", {"ranks": {"low": 1, "high": 2}}, "nothing to choose a model by"),
    ("horovod", {"seed": {"low": 1, "high": 2}}, "nothing to choose a model by"),
    ("horovod", {"model_name": {"choices": ["a"]}}, "nothing to choose a model by"),
    ("horovod", {"epochs": {}}, "no range of its own"),
    ("horovod", {"epochs": 3}, "no mapping"),
    ("horovod", {"learning_rate.x": {"low": 1, "high": 2}}, "no members"),
    ("horovod", {"learning_rate": {"low": 1, "hihg": 2}}, "'hihg'.*'high'"),
    ("horovod", {"learning_rate": {"low": 1}}, "neither a range nor choices"),
    ("horovod", {"learning_rate": {"low": 1, "high": 2, "choices": [1]}}, "neither a range"),
    ("horovod", {"learning_rate": {"low": 2, "high": 1}}, "low is above high"),
    ("horovod", {"learning_rate": {"low": True, "high": 1}}, "no finite number"),
    ("horovod", {"learning_rate": {"low": 0.1, "high": 1, "step": 0}}, "step is not above 0"),
    ("horovod", {"epochs": {"low": 1, "high": 9, "step": 2, "log": True}}, "exclude each other"),
    ("horovod", {"min_delta": {"low": 0, "high": 1, "log": True}}, "no logarithm"),
    ("horovod", {"epochs": {"low": 1, "high": 9, "log": "yes"}}, "neither true nor false"),
    ("horovod", {"schedule": {"choices": []}}, "no list with values"),
    ("horovod", {"schedule": {"choices": ["step", "step"]}}, "repeats"),
    ("xgboost", {"booster_params.subsample": {"low": 0.5, "high": 1.5}}, "'subsample' cannot be"),
    ("xgboost", {"booster_params.lamda": {"low": 0.5, "high": 1.5}}, "no parameter 'lamda'"),
    ("xgboost", {"max_depth": {"low": 0, "high": 6}}, "limit to its depth"),
    ("xgboost", {"booster_params.gamma": {"low": 0, "high": 10**400}}, "no finite number"),
    ("xgboost", {"booster_params.max_bin": {"low": 2, "high": 2**63}}, "no finite number"),
    ("horovod", {"network_params.a": {"low": -1.7e308, "high": 1.7e308}}, "wider than numbers"),
    ("horovod", {"network_params.a": {"low": 1, "high": 2**41, "log": True}}, "told apart.*real"),
    (
        "horovod",
        {"learning_rate": {"low": 0.1, "high": 1, "step": 5e-324}},
        "less than a step, or more",
    ),
    ("horovod", {"epochs": {"low": 1, "high": 9, "step": 9}}, "less than a step"),
    ("xgboost", {"metrics": {"choices": [["error"], ["auc"]]}}, "nothing to choose a model by"),
    (
        "xgboost",
        {"booster_params.gamma": {"low": 0, "high": 1}, "booster_params": {"choices": [{}]}},
        "tried as a whole",
    ),
    ("horovod", {"loss": {"choices": ["l1", "mse"]}}, "loss changes what the metric 'auto'"),
    ("horovod", {"class_weights": {"choices": ["none", "balanced"]}}, "class_weights changes"),
    ("xgboost", {"class_weights": {"choices": ["none", "balanced"]}}, "class_weights changes"),
    (
        "xgboost",
        {"objective": {"choices": ["reg:squarederror", "reg:absoluteerror"]}},
        "objective changes",
    ),
]


@pytest.mark.parametrize(("engine", "space", "message"), REFUSED)
def test_a_space_that_cannot_be_is_refused(
    engine: str, space: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        tune(engine=engine, space=space)
    assert caught.value.name == "space"


@pytest.mark.parametrize(
    ("settings", "name", "message"),
    [
        ({"metric": "validation_loss_at_5"}, "metric", "horovod does not measure"),
        ({"space": '{"epochs": {}, "epochs": {"low": 1, "high": 2}}'}, "space", "'epochs' twice"),
        ({"study": "studies/flights"}, "study", "relative path"),
        ({"study": "file:studies"}, "study", "relative path"),
        ({"study": "postgresql://host/studies"}, "study", "database.*TRAINYARD_STUDIES"),
        ({"study": "postgresql://user:secret@host/studies"}, "study", r"\(hidden\)"),
        (
            {"engine": "xgboost", "metric": "validation_error_at_x"},
            "metric",
            "'x' is no number.*error_at_0.5",
        ),
        (
            {"fixed": {"learning_rate": 0.1}, "space": {"learning_rate": {}}},
            "space",
            "it is fixed",
        ),
        (
            {
                "space": '{"optimizer_params": {"choices": [{"betas": '
                + "[" * 800
                + "]" * 800
                + "}]}}"
            },
            "space",
            "nested too deeply",
        ),
        ({"metric": "validation_acuracy"}, "metric", "'validation_accuracy'"),
        ({"metric": "validation_logloss"}, "metric", "horovod does not measure"),
        ({"metric": "validation_accuracy", "direction": "minimize"}, "direction", "more is better"),
        ({"metric": "validation_loss", "direction": "maximize"}, "direction", "less is better"),
        ({"direction": "maximize"}, "direction", "name the metric"),
        ({"fixed": {"ranks": 2}}, "fixed", "not for a trial to say"),
        ({"fixed": {"seed": 2}}, "fixed", "not for a trial to say"),
        ({"fixed": {"run_dir": "/x"}}, "fixed", "not for a trial to say"),
        ({"fixed": {"epoch": 2}}, "fixed", "'epochs'"),
        ({"fixed": {"epochs": 0}}, "fixed", "too small"),
        (
            {
                "engine": "xgboost",
                "metric": "validation_auc",
                "fixed": {"metrics": ["aucpr", "logloss"]},
            },
            "metric",
            "lack it",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(
    settings: dict[str, Any], name: str, message: str
) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        tune(**settings)
    assert caught.value.name == name


def test_the_metric_is_measured_and_decides() -> None:
    spec = tune(engine="xgboost", metric="validation_error_at_0.7", direction="minimize")
    trees = spec.trial("/t", {})
    assert isinstance(trees, TrainXGBoost)
    assert trees.metrics == ("error@0.7",)
    assert spec.grows is False
    assert tune(engine="xgboost", metric="validation_auc").grows is True
    assert spec.chosen({})["metrics"] == ["error@0.7"]


@pytest.mark.parametrize("study", ["/studies", "file:///studies", "s3://bucket/studies", ""])
def test_a_study_lies_anywhere_that_all_drivers_see(study: str) -> None:
    assert tune(study=study).study == (study or None)
