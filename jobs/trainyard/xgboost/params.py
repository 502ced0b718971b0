"""What XGBoost is told to do: the settings, as far as a dataset decides on them too."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost as xgb

from trainyard.boosters import GROWING, METRICS, OBJECTIVES, kind_of
from trainyard.dataset import Dataset
from trainyard.errors import JobError, SettingError, nearest
from trainyard.specs import TrainXGBoost
from trainyard.specs.class_weights import check_fit
from trainyard.xgboost.engine import last_line
from trainyard.xgboost.rows import feature_types

_DEFAULT_METRIC = {
    "reg:absoluteerror": "mae",
    "reg:pseudohubererror": "mphe",
    "reg:squaredlogerror": "rmsle",
    "reg:quantileerror": "quantile",
    "reg:gamma": "gamma-nloglik",
    "reg:tweedie": "tweedie-nloglik",
    "count:poisson": "poisson-nloglik",
}
"""The metric of what an objective makes small, where it is not the first of its kind."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a training of a dataset aims at.

    Attributes:
        objective: XGBoost's name of it.
        metrics: what each round is measured by; the last decides.
    """

    objective: str
    metrics: tuple[str, ...]

    @property
    def deciding(self) -> str:
        """The metric that decides which round is best."""
        return self.metrics[-1]

    @property
    def grows(self) -> bool:
        """Whether more of it is better."""
        return self.deciding in GROWING


def goal_of(spec: TrainXGBoost, dataset: Dataset) -> Goal:
    """What the settings mean for a dataset.

    Raises:
        SettingError: they do not suit it.
    """
    kind = kind_of(task=dataset.task, classes=len(dataset.classes))
    has = f"{len(dataset.classes)} classes" if dataset.classes else "a number as its label"
    objective = OBJECTIVES[kind][0] if spec.objective == "auto" else spec.objective
    if objective not in OBJECTIVES[kind]:
        raise SettingError(
            "objective",
            spec.objective,
            f"the dataset has {has}",
            f"Use auto or one of: {', '.join(OBJECTIVES[kind])}.",
        )
    first = _DEFAULT_METRIC.get(objective, METRICS[kind][0])
    if objective == "reg:tweedie":
        first = f"{first}@{spec.booster_params.get('tweedie_variance_power', 1.5)}"
    metrics = spec.metrics or (first,)
    for metric in metrics:
        if metric.partition("@")[0] not in METRICS[kind]:
            raise SettingError(
                "metrics",
                list(metrics),
                f"{metric!r} does not measure a dataset with {has}",
                nearest(metric, METRICS[kind]),
            )
    return Goal(objective=objective, metrics=tuple(metrics))


def params_of(spec: TrainXGBoost, dataset: Dataset, *, device: str = "cpu") -> dict[str, Any]:
    """XGBoost's parameters of a training.

    Args:
        spec: the job's settings.
        dataset: the prepared dataset.
        device: XGBoost's name of where this worker trains.
    """
    goal = goal_of(spec, dataset)
    classes = len(dataset.classes)
    return {
        "learning_rate": spec.learning_rate,
        "max_depth": spec.max_depth,
        "tree_method": "hist",
        **{name: _text(name, value) for name, value in spec.booster_params.items()},
        "objective": goal.objective,
        **_metrics(goal),
        **({"num_class": classes} if classes > 2 else {}),
        "device": device,
        "nthread": 1,
        "seed": spec.seed,
        "validate_parameters": True,
    }


def _text(name: str, value: Any) -> Any:
    """Flags as XGBoost reads them, and constraints: by the features' positions, not their names."""
    if name == "monotone_constraints" and isinstance(value, list):
        return f"({','.join(map(str, value))})"
    if isinstance(value, bool):
        return int(value)
    return json.dumps(value) if isinstance(value, list) else value


def _metrics(goal: Goal) -> dict[str, Any]:
    """What XGBoost measures itself: it would take the mean of the workers' areas under curves."""
    own = [metric for metric in goal.metrics if metric not in GROWING]
    return {"eval_metric": own} if own else {"disable_default_eval_metric": True}


def check(spec: TrainXGBoost, dataset: Dataset) -> Goal:
    """Refuse what the workers would stumble over, before they start.

    Raises:
        JobError: settings and dataset do not go together, or XGBoost refuses the parameters.
    """
    goal = goal_of(spec, dataset)
    check_fit(spec.class_weights, task=dataset.task, classes=dataset.classes)
    if dataset.rows("train") == 0:
        raise JobError(
            f"the training split of {dataset.directory!r} has 0 rows.",
            "Prepare a dataset with rows to train on.",
        )
    if spec.early_stopping_rounds and not dataset.rows("validation"):
        raise SettingError(
            "early_stopping_rounds",
            spec.early_stopping_rounds,
            f"the validation split of {dataset.directory!r} has 0 rows to stop by",
            "Prepare the dataset with a validation split, or set it to 0.",
        )
    types = feature_types(dataset)
    if spec.missing is not None and types and spec.missing >= 0 and spec.missing % 1 == 0:
        raise SettingError(
            "missing",
            spec.missing,
            f"categories are numbered from 0, so that one of {', '.join(_categories(dataset))} "
            "would be missing too",
            "Make such numbers null before prepare, with imputation='keep', and leave missing out.",
        )
    _check_places(spec, dataset)
    _try(spec, dataset, types)
    return goal


def _check_places(spec: TrainXGBoost, dataset: Dataset) -> None:
    """Refuse what XGBoost lets pass: places of features that are none, a class that is none."""
    given: Any = spec.booster_params.get("interaction_constraints", [])
    groups = json.loads(given) if isinstance(given, str) else given
    most = max((place for group in groups for place in group), default=0)
    if most >= dataset.width:
        raise SettingError(
            "booster_params",
            spec.booster_params,
            f"interaction_constraints names the feature at {most}, but there are {dataset.width}",
            f"Name features by their places, 0 to {dataset.width - 1}.",
        )
    if "scale_pos_weight" in spec.booster_params and len(dataset.classes) != 2:
        raise SettingError(
            "booster_params",
            spec.booster_params,
            "scale_pos_weight weighs the second of two classes, and the dataset has "
            f"{len(dataset.classes) or 'none'}",
            "Set class_weights." if dataset.classes else "Leave it out.",
        )


def _categories(dataset: Dataset) -> tuple[str, ...]:
    return dataset.preprocessing.indexed if dataset.preprocessing else ()


def _try(spec: TrainXGBoost, dataset: Dataset, types: list[str] | None) -> None:
    """Train one round on a few made-up rows: what XGBoost refuses, it refuses here."""
    rows = max(4, 2 * len(dataset.classes))
    features = np.zeros((rows, dataset.width), np.float32)
    # Halves suit every objective of a regression.
    labels = np.arange(rows) % len(dataset.classes) if dataset.classes else np.full(rows, 0.5)
    try:
        made_up = xgb.DMatrix(
            features, labels, feature_types=types, enable_categorical=True, nthread=1
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            booster = xgb.train(params_of(spec, dataset), made_up, 1)
            booster.eval(made_up)
    except (xgb.core.XGBoostError, ValueError) as error:
        raise SettingError(
            "booster_params",
            spec.booster_params,
            f"XGBoost refuses it: {last_line(error)}",
            "Correct the parameter that it names.",
        ) from error
    said = " ".join(str(warning.message) for warning in told)
    for names in re.findall(r"Parameters: \{(.*?)\} are not used", said):
        raise SettingError(
            "booster_params",
            spec.booster_params,
            f"{names.strip()} has no effect with the objective "
            f"{goal_of(spec, dataset).objective} and the booster "
            f"{spec.booster_params.get('booster', 'gbtree')}",
            "Leave it out, or set the objective or the booster to which it belongs.",
        )
