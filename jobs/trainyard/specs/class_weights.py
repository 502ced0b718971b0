"""The setting `class_weights`, which every training of a classification has."""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.errors import SettingError

_MOST = 3.4e38
"""What a 32-bit float can hold."""

NONE = "none"
BALANCED = "balanced"

HELP = (
    "How much a row of each class counts in the loss: none, balanced, or a number for each class "
    "in the dataset's order, such as 1,2.5."
)


def class_weight_values(text: str) -> tuple[float, ...] | None:
    """The numbers that the setting holds, if it holds any."""
    if text in (NONE, BALANCED):
        return None
    return tuple(float(number) for number in text.split(","))


def check_class_weights(text: str) -> None:
    """Raise `SettingError` when the setting is neither a word that it knows nor numbers."""
    try:
        values = class_weight_values(text)
    except ValueError:
        values = (-1.0,)
    if values is not None and not (min(values) >= 0 and 0 < sum(values) < _MOST):
        raise SettingError(
            "class_weights",
            text,
            "it is neither none, nor balanced, nor numbers from 0 to what 32 bits hold",
            "Write one number for each class, separated by commas.",
        )


def check_fit(text: str, *, task: str, classes: Sequence[object]) -> None:
    """Raise `SettingError` when a dataset has no classes, or not as many as there are numbers."""
    if text == NONE:
        return
    if task == "regression":
        problem = "the dataset is made for regression, which has no classes"
        raise SettingError("class_weights", text, problem, "Set it to none.")
    values = class_weight_values(text)
    if values is not None and len(values) != len(classes):
        raise SettingError(
            "class_weights",
            text,
            f"it has {len(values)} numbers, but the dataset has {len(classes)} classes",
            f"Give one for each of {', '.join(map(str, classes))}, in this order.",
        )
