"""The real parameter names of the optimizers, so that a misspelt one is refused before submission.

Airflow's side has no torch to ask; a test in the jobs' environment compares this table with torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.errors import SettingError, nearest

OPTIMIZER_PARAMS: dict[str, dict[str, str]] = {
    "SGD": {
        "momentum": "number",
        "dampening": "number",
        "weight_decay": "number",
        "nesterov": "flag",
    },
    "Adam": {"betas": "pair", "eps": "number", "weight_decay": "number", "amsgrad": "flag"},
    "AdamW": {"betas": "pair", "eps": "number", "weight_decay": "number", "amsgrad": "flag"},
    "Adagrad": {
        "lr_decay": "number",
        "weight_decay": "number",
        "initial_accumulator_value": "number",
        "eps": "number",
    },
    "RMSprop": {
        "alpha": "number",
        "eps": "number",
        "weight_decay": "number",
        "momentum": "number",
        "centered": "flag",
    },
}
"""For each `torch.optim` class, its own parameters besides `params` and `lr`, and their kind."""


def check_optimizer_params(optimizer: str, params: Mapping[str, Any]) -> None:
    """Raise `SettingError` for a parameter that the optimizer lacks, or of another kind."""
    known = OPTIMIZER_PARAMS[optimizer]
    for name, value in params.items():
        if name in ("lr", "learning_rate"):
            raise SettingError(
                "optimizer_params",
                dict(params),
                f"{name!r} is a setting of its own",
                "Set learning_rate.",
            )
        if name not in known:
            raise SettingError(
                "optimizer_params",
                dict(params),
                f"{optimizer} has no parameter {name!r}",
                f"{nearest(name, known)} With {{}} it takes its own defaults.",
            )
        if not _is_kind(value, known[name]):
            raise SettingError(
                "optimizer_params",
                dict(params),
                f"{name!r} wants a {known[name]}, not {value!r}",
                {
                    "flag": "Give true or false.",
                    "pair": "Give two numbers, such as [0.9, 0.999].",
                }.get(known[name], "Give a number."),
            )


def _is_kind(value: Any, kind: str) -> bool:
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "pair":
        return (
            isinstance(value, list | tuple)
            and len(value) == 2
            and all(_is_kind(v, "number") for v in value)
        )
    return isinstance(value, int | float) and not isinstance(value, bool)
