"""Values that an optimizer refuses are refused before any rank starts."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SettingError
from trainyard.horovod import optimizer
from trainyard.specs import TrainHorovod


def spec_of(**settings: Any) -> TrainHorovod:
    return TrainHorovod(run_dir="/r", dataset="/d", model_name="m", **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer_params": {"nesterov": True}},
        {"optimizer_params": {"momentum": -1}},
        {"optimizer": "Adam", "optimizer_params": {"betas": [1, 2]}},
        {"learning_rate": 1e300, "scale_learning_rate": False},
        {"optimizer_params": {"momentum": 10**400}},
    ],
)
def test_a_value_that_the_optimizer_refuses(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="refuses it: "):
        optimizer.check(spec_of(**settings))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
def test_defaults_are_accepted(name: str) -> None:
    optimizer.check(spec_of(optimizer=name, optimizer_params={}))
