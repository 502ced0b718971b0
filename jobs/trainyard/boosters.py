"""XGBoost's real parameter, objective and metric names, so that a misspelt one is refused early.

Airflow's side has no xgboost to ask; a test in the jobs' environment compares these tables with the
library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.errors import SettingError, nearest
from trainyard.old_names import NO_RANKING


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a parameter's value must be.

    Attributes:
        form: `number`, `whole`, `flag`, `choice`, `signs` or `groups` (lists, or XGBoost's texts).
        minimum: least number, inclusive.
        above: bound that a number must exceed.
        maximum: greatest number, inclusive.
        choices: the only texts allowed.
    """

    form: str
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        """What to give, for a person."""
        if self.choices:
            return f"one of: {', '.join(self.choices)}"
        if self.form in _WANTED:
            return _WANTED[self.form]
        bounds = [
            f"of {self.minimum:g} or more" if self.minimum is not None else "",
            f"above {self.above:g}" if self.above is not None else "",
            f"of {self.maximum:g} or less" if self.maximum is not None else "",
        ]
        noun = "a whole number" if self.form == "whole" else "a number"
        return " ".join([noun, " and ".join(filter(None, bounds))]).strip()

    def allows(self, value: Any) -> bool:
        """Whether a value is of this kind."""
        if self.form == "choice":
            return value in self.choices
        if self.form == "signs":
            return _are_signs(value)
        if self.form == "groups":
            return _are_groups(value)
        if self.form == "flag":
            return isinstance(value, bool) or value in (0, 1)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.form == "whole" and value % 1:
            return False
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
        )


_WANTED = {
    "flag": "0, 1, true or false",
    "signs": "-1, 0 or 1 for each feature in their order, such as [1, 0, -1]",
    "groups": "lists of features' places from 0 on, such as [[0, 1], [2, 3]]",
}


def _are_signs(value: Any) -> bool:
    """Whether it is a list of -1, 0 and 1, or such as text: `(1,0,-1)`."""
    if isinstance(value, str):
        return re.fullmatch(r"\(\s*-?[01](\s*,\s*-?[01])*\s*,?\s*\)", value) is not None
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(sign) is int and sign in (-1, 0, 1) for sign in value)
    )


def _are_groups(value: Any) -> bool:
    """Whether it is a list of lists of features' places, or such as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return False
    return isinstance(value, list) and all(
        isinstance(group, list) and all(type(place) is int and place >= 0 for place in group)
        for group in value
    )


_SHARE = Kind(form="number", above=0, maximum=1)
_PROBABILITY = Kind(form="number", minimum=0, maximum=1)
_POSITIVE = Kind(form="number", minimum=0)

BOOSTER_PARAMS: dict[str, Kind] = {
    "alpha": _POSITIVE,
    "base_score": Kind(form="number"),
    "booster": Kind(form="choice", choices=("gbtree", "dart")),
    "boost_from_average": Kind(form="flag"),
    "colsample_bylevel": _SHARE,
    "colsample_bynode": _SHARE,
    "colsample_bytree": _SHARE,
    "gamma": _POSITIVE,
    "grow_policy": Kind(form="choice", choices=("depthwise", "lossguide")),
    "huber_slope": Kind(form="number", above=0),
    "interaction_constraints": Kind(form="groups"),
    "lambda": _POSITIVE,
    "max_bin": Kind(form="whole", minimum=2),
    "max_cached_hist_node": Kind(form="whole", minimum=1),
    "max_cat_threshold": Kind(form="whole", minimum=1),
    "max_cat_to_onehot": Kind(form="whole", minimum=1),
    "max_delta_step": _POSITIVE,
    "max_leaves": Kind(form="whole", minimum=0),
    "min_child_weight": _POSITIVE,
    "min_split_loss": _POSITIVE,
    "monotone_constraints": Kind(form="signs"),
    "multi_strategy": Kind(form="choice", choices=("one_output_per_tree",)),
    "normalize_type": Kind(form="choice", choices=("tree", "forest")),
    "num_parallel_tree": Kind(form="whole", minimum=1, maximum=10_000),
    "one_drop": Kind(form="flag"),
    "quantile_alpha": Kind(form="number", above=0, maximum=1),
    "rate_drop": _PROBABILITY,
    "reg_alpha": _POSITIVE,
    "reg_lambda": _POSITIVE,
    "sample_type": Kind(form="choice", choices=("uniform", "weighted")),
    "sampling_method": Kind(form="choice", choices=("uniform", "gradient_based")),
    "scale_pos_weight": Kind(form="number", above=0),
    "skip_drop": _PROBABILITY,
    "sparse_threshold": _PROBABILITY,
    "subsample": _SHARE,
    "tree_method": Kind(form="choice", choices=("auto", "hist")),
    "tweedie_variance_power": Kind(form="number", above=1, maximum=2),
}
"""The booster's own parameters that `booster_params` takes."""

_SAME = {"reg_alpha": "alpha", "reg_lambda": "lambda", "min_split_loss": "gamma"}
"""Second names of parameters; of both XGBoost would take one, and not say which."""

ELSEWHERE: dict[str, tuple[str, str]] = {
    "eta": ("it is a setting of its own", "Set learning_rate."),
    "learning_rate": ("it is a setting of its own", "Set learning_rate."),
    "max_depth": ("it is a setting of its own", "Set max_depth."),
    "objective": ("it is a setting of its own", "Set objective."),
    "eval_metric": ("it is a setting of its own", "Set metrics."),
    "disable_default_eval_metric": ("metrics are a setting of their own", "Set metrics."),
    "seed": ("it is a setting of its own", "Set seed."),
    "random_state": ("the seed is a setting of its own", "Set seed."),
    "seed_per_iteration": ("the seed is a setting of its own", "Set seed."),
    "device": ("it is a setting of its own", "Set device."),
    "missing": ("it is a setting of its own", "Set missing."),
    "num_workers": ("it is a setting of its own", "Set num_workers."),
    "num_boost_round": ("rounds are a setting of their own", "Set rounds."),
    "n_estimators": ("rounds are a setting of their own", "Set rounds."),
    "early_stopping_rounds": ("it is a setting of its own", "Set early_stopping_rounds."),
    "num_class": ("the dataset says how many classes there are", "Leave it out."),
    "num_target": ("the dataset says what is predicted", "Leave it out."),
    "enable_categorical": (
        "the dataset says which features are categories",
        "Name them in prepare's 'categorical', with encoding='index'.",
    ),
    "feature_types": (
        "the dataset says which features are categories",
        "Name them in prepare's 'categorical', with encoding='index'.",
    ),
    "nthread": ("a worker has one thread", "Set num_workers: one for each core."),
    "n_jobs": ("a worker has one thread", "Set num_workers: one for each core."),
    "gpu_id": ("Spark says which GPU a worker has", "Set device to gpu."),
    "fail_on_invalid_gpu_id": ("Spark says which GPU a worker has", "Set device to gpu."),
    "process_type": ("trees are made here, not updated", "Leave it out."),
    "refresh_leaf": ("trees are made here, not updated", "Leave it out."),
    "updater": ("tree_method decides on it", "Leave it out."),
    "validate_parameters": ("they always are", "Leave it out."),
    "verbosity": ("a worker logs warnings and errors", "Leave it out."),
}
"""Parameters of XGBoost that are set in another way here: why, and what to do."""

OBJECTIVES: dict[str, tuple[str, ...]] = {
    "binary": ("binary:logistic",),
    "multiclass": ("multi:softprob",),
    "regression": (
        "reg:squarederror",
        "reg:absoluteerror",
        "reg:pseudohubererror",
        "reg:squaredlogerror",
        "reg:logistic",
        "reg:quantileerror",
        "reg:gamma",
        "reg:tweedie",
        "count:poisson",
    ),
}
"""The objectives for each kind of label; the first is what `auto` means."""

METRICS: dict[str, tuple[str, ...]] = {
    "binary": ("logloss", "error", "auc", "aucpr", "rmse", "mae"),
    "multiclass": ("mlogloss", "merror"),
    "regression": (
        "rmse",
        "rmsle",
        "mae",
        "mape",
        "mphe",
        "quantile",
        "poisson-nloglik",
        "gamma-nloglik",
        "gamma-deviance",
        "tweedie-nloglik",
    ),
}
"""The metrics of each round for each kind of label; the first is the default."""

GROWING = ("auc", "aucpr")
"""Metrics of which more is better."""

_WITH_NUMBER = ("error", "tweedie-nloglik")
_RANKING = ("ndcg", "map", "pre")


def check_booster_params(params: Mapping[str, Any]) -> None:
    """Raise `SettingError` for a parameter that is not XGBoost's, or not to be set so."""
    given = dict(params)
    for name, value in params.items():
        if name in ELSEWHERE:
            problem, fix = ELSEWHERE[name]
            raise SettingError("booster_params", given, f"{name!r}: {problem}", fix)
        if name not in BOOSTER_PARAMS:
            raise SettingError(
                "booster_params",
                given,
                f"XGBoost has no parameter {name!r}",
                nearest(name, [*BOOSTER_PARAMS, "eta", "learning_rate", "max_depth"]),
            )
        if name == "tree_method" and value in ("exact", "approx"):
            raise SettingError(
                "booster_params",
                given,
                f"tree_method {value!r} needs all rows as they are on every worker, which hold "
                "quantised ones",
                "Use hist; a max_bin above 256 brings it closer to exact.",
            )
        if name == "booster" and value == "gblinear":
            raise SettingError(
                "booster_params",
                given,
                "gblinear is no tree booster, and XGBoost does not train it distributed",
                "Use gbtree or dart.",
            )
        if name == "multi_strategy" and value == "multi_output_tree":
            raise SettingError(
                "booster_params",
                given,
                "XGBoost has neither importances nor SHAP values of trees with several outputs",
                "Leave multi_strategy out.",
            )
        if _SAME.get(name) in params:
            raise SettingError(
                "booster_params",
                given,
                f"{name!r} and {_SAME[name]!r} are the same parameter",
                "Set one of them.",
            )
        if not BOOSTER_PARAMS[name].allows(value):
            raise SettingError(
                "booster_params",
                given,
                f"{name!r} cannot be {value!r}",
                f"Give {BOOSTER_PARAMS[name].wanted}.",
            )


def check_objective(objective: str) -> None:
    """Raise `SettingError` for an objective that cannot be trained for."""
    known = [name for names in OBJECTIVES.values() for name in names]
    if objective == "auto" or objective in known:
        return
    if objective.startswith("rank:"):
        problem, fix = NO_RANKING
    elif objective in ("binary:logitraw", "binary:hinge", "multi:softmax"):
        problem = "it gives no probabilities, by which a model is judged"
        fix = "Use multi:softprob." if objective.startswith("multi") else "Use binary:logistic."
    else:
        problem, fix = "it is not a known choice", nearest(objective, ["auto", *known])
    raise SettingError("objective", objective, problem, fix)


def check_metrics(metrics: tuple[str, ...]) -> None:
    """Raise `SettingError` for a metric that XGBoost lacks or that repeats."""
    known = sorted({name for names in METRICS.values() for name in names})
    for metric in metrics:
        name, at, number = metric.partition("@")
        if name in _RANKING:
            raise SettingError(
                "metrics",
                list(metrics),
                f"{metric!r}: {NO_RANKING[0]}",
                "Use auc or logloss.",
            )
        if name not in known or (at and name not in _WITH_NUMBER):
            raise SettingError(
                "metrics", list(metrics), f"XGBoost has no metric {metric!r}", nearest(name, known)
            )
        if name == "tweedie-nloglik" and not number:
            raise SettingError(
                "metrics",
                list(metrics),
                f"{metric!r} needs the variance power",
                "Write it as tweedie-nloglik@1.5.",
            )
        if at and not re.fullmatch(r"[0-9]*\.?[0-9]+", number):
            raise SettingError(
                "metrics",
                list(metrics),
                f"{number!r} is no number",
                f"Write it as {name}@0.5.",
            )
        if name == "tweedie-nloglik" and not 1 < float(number) < 2:
            raise SettingError(
                "metrics",
                list(metrics),
                f"{metric!r}: a variance power is above 1 and below 2",
                "Write it as tweedie-nloglik@1.5.",
            )
        if metrics.count(metric) > 1:
            raise SettingError("metrics", list(metrics), f"{metric!r} repeats", "Name it once.")


def kind_of(*, task: str, classes: int) -> str:
    """The kind of label: `binary`, `multiclass` or `regression`."""
    if task == "regression":
        return "regression"
    return "binary" if classes == 2 else "multiclass"
