"""The operator's own arguments, as templates may have made them, checked before a submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.errors import JobError

_NOTHING = (None, "None")


def check_arguments(conf: Any, env_vars: Any, files: Mapping[str, Any]) -> None:
    """Check Spark configuration, environment variables and files; no value of a variable is shown.

    Args:
        conf: Spark configuration of the operator, or None.
        env_vars: environment variables of the job, or None.
        files: comma-separated paths, or None, by the operator's argument that names them.

    Raises:
        JobError: one is of another type, or would be ignored or fail on its way to the driver.
    """
    for name, value in _mapping("conf", conf).items():
        if not str(name).startswith("spark."):
            raise JobError(
                f"conf of the operator sets {name!r}: spark-submit ignores what does not begin"
                " with 'spark.'.",
                "Correct the name, or give it by env_vars.",
            )
        if value in _NOTHING or not isinstance(value, str | int | float):
            raise JobError(
                f"conf of the operator sets {name!r} to {_shown(value)}.",
                "Give a text or a number, or leave it out; did a template give nothing?",
            )
    for name, value in _mapping("env_vars", env_vars).items():
        if not str(name) or "=" in str(name) or "\0" in f"{name}{value}":
            raise JobError(
                f"env_vars of the operator has the variable {name!r}, which no process can have.",
                "Use a name without '=', and a value without a NUL character.",
            )
        if value in _NOTHING:
            raise JobError(
                f"env_vars of the operator sets {name!r} to nothing.",
                "Leave it out, or set it to an empty text; did a template give nothing?",
            )
    for name, value in files.items():
        if value is not None and not isinstance(value, str):
            raise JobError(
                f"{name} of the operator is {_shown(value)}.",
                "Give one text, several paths in it separated by commas.",
            )


def _mapping(name: str, value: Any) -> Mapping[Any, Any]:
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise JobError(
            f"{name} of the operator is {_shown(value)}, and no mapping.",
            'Give one, such as {"NAME": "value"}; templates belong into its values.',
        )
    return value


def _shown(value: Any) -> str:
    """What may be shown of a value that may hold a secret."""
    return "nothing" if value in _NOTHING else f"of type {type(value).__name__}"
