"""XGBoost's names: ours are the library's, and what is refused says what to do instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from trainyard.boosters import BOOSTER_PARAMS, ELSEWHERE, METRICS, OBJECTIVES
from trainyard.errors import SettingError
from trainyard.specs import TrainXGBoost

TRAIN: dict[str, Any] = {"run_dir": "/r", "dataset": "/d", "model_name": "m"}

EXTRA: list[dict[str, Any]] = [
    {"booster": "dart"},
    {"objective": "reg:tweedie"},
    {"objective": "reg:pseudohubererror"},
    {"objective": "reg:quantileerror", "quantile_alpha": 0.5},
    {"objective": "count:poisson"},
    {"objective": "multi:softprob", "num_class": 2},
]
INTERNAL = {"name", "specified_updater", "updater_seq", "num_trees", "num_feature", "id", "metrics"}
"""What a configuration holds that is no parameter."""
UNLISTED = {"debug_synchronize"}
"""Of no use to anybody but XGBoost's own developers."""


def names_in(config: Any, parent: str = "") -> Iterator[str]:
    if isinstance(config, dict):
        for name, value in config.items():
            if isinstance(value, dict | list):
                yield from names_in(value, name)
            else:
                yield name
    if isinstance(config, list):
        for value in config:
            yield from names_in(value, parent)


def test_every_parameter_of_the_library_is_known() -> None:
    features = np.arange(40, dtype=np.float32).reshape(20, 2)
    matrix = xgb.DMatrix(features, np.arange(20) % 2)
    found: set[str] = set()
    for params in ({"objective": "binary:logistic"}, *EXTRA):
        booster = xgb.train(params, matrix, 1)
        found |= set(names_in(json.loads(booster.save_config())["learner"]))
    known = set(BOOSTER_PARAMS) | set(ELSEWHERE) | INTERNAL | UNLISTED
    assert found - known == set()


def test_every_known_parameter_is_the_librarys(capfd: pytest.CaptureFixture[str]) -> None:
    features = np.arange(40, dtype=np.float32).reshape(20, 2)
    matrix = xgb.DMatrix(features, np.arange(20) % 2)
    for name, kind in BOOSTER_PARAMS.items():
        values: dict[str, Any] = {"choice": kind.choices[-1:], "flag": 1}
        values |= {"signs": "(0,0)", "groups": "[]"}
        value = values.get(kind.form, 1 if kind.minimum is None else max(kind.minimum, 1))
        value = value[0] if isinstance(value, tuple) else value
        needs = [p for p in EXTRA if name in json.dumps(config_of(p, matrix))]
        params = {**(needs[0] if needs else {}), name: value}
        if name in ("base_score", "quantile_alpha"):
            params[name] = 0.5
        with pytest.warns() as caught:
            xgb.train({**params, "surely_unknown": 1}, matrix, 1)
        unused = " ".join(str(warning.message) for warning in caught)
        assert "surely_unknown" in unused
        assert f'"{name}"' not in unused, name


def config_of(params: dict[str, Any], matrix: xgb.DMatrix) -> Any:
    return json.loads(xgb.train(params, matrix, 1).save_config())


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_every_objective_and_metric_is_the_librarys(kind: str) -> None:
    features = np.arange(40, dtype=np.float32).reshape(20, 2)
    labels = np.full(20, 0.5) if kind == "regression" else np.arange(20) % 2
    matrix = xgb.DMatrix(features, labels)
    for objective in OBJECTIVES[kind]:
        more = {"quantile_alpha": 0.5} if "quantile" in objective else {}
        more |= {"num_class": 3} if kind == "multiclass" else {}
        metrics = [name + "@1.5" * name.startswith("tweedie") for name in METRICS[kind]]
        if "quantile" in metrics and not more:
            metrics.remove("quantile")  # which goes with its objective alone
        params = {"objective": objective, "eval_metric": metrics, **more}
        said = xgb.train(params, matrix, 1).eval(matrix)
        assert [f"-{metric}:" in said for metric in metrics] == [True] * len(metrics)


@pytest.mark.parametrize(
    ("params", "problem", "fix"),
    [
        ({"max_dept": 3}, "no parameter 'max_dept'", "'max_depth'"),
        ({"sub_sample": 0.5}, "no parameter 'sub_sample'", "'subsample'"),
        ({"eta": 0.1}, "'eta': it is a setting of its own", "learning_rate"),
        ({"max_depth": 3}, "setting of its own", "Set max_depth"),
        ({"n_jobs": 2}, "one thread", "num_workers"),
        ({"gpu_id": 0}, "Spark says which GPU", "device"),
        ({"tree_method": "exact"}, "'exact' needs all rows", "max_bin"),
        ({"tree_method": "approx"}, "'approx' needs all rows", "hist"),
        ({"booster": "gblinear"}, "no tree booster", "dart"),
        ({"multi_strategy": "multi_output_tree"}, "neither importances nor SHAP", "Leave"),
        ({"reg_alpha": 1, "alpha": 2}, "'reg_alpha' and 'alpha' are the same", "Set one"),
        ({"lambda": 1, "reg_lambda": 2}, "'reg_lambda' and 'lambda' are the same", "Set one"),
        ({"num_parallel_tree": 10**9}, "cannot be 1000000000", "10000 or less"),
        ({"subsample": 0}, "cannot be 0", "above 0 and of 1 or less"),
        ({"subsample": "0.5"}, "cannot be '0.5'", "a number"),
        ({"max_leaves": 2.5}, "cannot be 2.5", "whole number"),
        ({"gamma": True}, "cannot be True", "a number"),
        ({"grow_policy": "lossgide"}, "cannot be 'lossgide'", "lossguide"),
        *[
            ({"monotone_constraints": value}, "'monotone_constraints' cannot be", "[1, 0, -1]")
            for value in ([[1]], [2], [], [True], [0.5], "1", "(2)", "()", {"a": 1})
        ],
        *[
            ({"interaction_constraints": value}, "cannot be", "[[0, 1], [2, 3]]")
            for value in ([0, 1], [["a"]], [[-1]], [[True]], "[[0", "[0]", "[" * 9999, 1)
        ],
    ],
)
def test_a_wrong_parameter_is_refused(params: dict[str, Any], problem: str, fix: str) -> None:
    with pytest.raises(SettingError) as caught:
        TrainXGBoost.from_mapping({**TRAIN, "booster_params": params})
    assert problem in caught.value.cause
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("gpu_id", "device"),
        ("output_margin", "output_margin=True"),
        ("validate_features", "Leave it out"),
        ("sample_weight", "'weight'"),
        ("eval_set", "validation_fraction"),
        ("sample_weight_eval_set", "'weight'"),
        ("base_margin", "'base_margin'"),
        ("base_margin_eval_set", "'base_margin'"),
        ("group", "relevance"),
        ("n_jobs", "num_workers"),
        ("tree_method", "booster_params"),
        ("enable_sparse_data_optim", "missing"),
    ],
)
def test_an_old_name_says_what_to_use(name: str, fix: str) -> None:
    flag = f"--{name.replace('_', '-')}=1"
    ways: list[Callable[[], TrainXGBoost]] = [
        lambda: TrainXGBoost(**{**TRAIN, name: 1}),
        lambda: TrainXGBoost.from_mapping({**TRAIN, name: 1}),
        lambda: TrainXGBoost.parse([*TrainXGBoost(**TRAIN).argv(), flag]),
    ]
    for way in ways:
        with pytest.raises(SettingError) as caught:
            way()
        assert caught.value.name == name
        assert "no such setting" in caught.value.cause
        assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("settings", "problem", "fix"),
    [
        ({"objective": "rank:ndcg"}, "ranking is not there yet", "relevance"),
        ({"objective": "binary:hinge"}, "no probabilities", "binary:logistic"),
        ({"objective": "reg:squarederor"}, "not a known choice", "'reg:squarederror'"),
        ({"objective": "reg:quantileerror"}, "quantile_alpha", "both"),
        ({"metrics": "aucc"}, "no metric 'aucc'", "'auc'"),
        ({"metrics": "ndcg"}, "ranking is not there yet", "auc"),
        ({"metrics": "rmse@0.5"}, "no metric 'rmse@0.5'", "'rmse'"),
        ({"metrics": "tweedie-nloglik"}, "variance power", "tweedie-nloglik@1.5"),
        ({"metrics": "tweedie-nloglik@2"}, "below 2", "tweedie-nloglik@1.5"),
        ({"metrics": "tweedie-nloglik@1"}, "above 1", "tweedie-nloglik@1.5"),
        ({"metrics": "error@half"}, "'half' is no number", "error@0.5"),
        ({"metrics": "error@"}, "'' is no number", "error@0.5"),
        ({"metrics": "error@²"}, "'²' is no number", "error@0.5"),
        ({"metrics": "auc@"}, "no metric 'auc@'", "'auc'"),
        ({"metrics": "auc,auc"}, "repeats", "once"),
        ({"max_depth": 0}, "without a limit", "max_leaves"),
        ({"class_weights": "heavy"}, "neither none", "one number"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], problem: str, fix: str) -> None:
    with pytest.raises(SettingError) as caught:
        TrainXGBoost.from_mapping({**TRAIN, **settings})
    assert problem in caught.value.cause
    assert fix in caught.value.fix
