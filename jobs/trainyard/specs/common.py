"""What the settings of several jobs share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from trainyard.contract import Contract, setting
from trainyard.errors import SettingError

SPLITS = ("train", "validation", "test", "holdout")
"""The parts of a prepared dataset; the last is empty unless it is asked for."""

TASKS = ("classification", "regression")
"""What a model learns: which class a row has, or a number."""

SOURCE_FORMATS = ("auto", "parquet", "csv", "json", "idx", "table", "sample")
"""How a source is read; `auto` goes by the name."""


@dataclass(frozen=True, kw_only=True)
class RunDirectory(Contract):
    """What every job takes."""

    slots_setting: ClassVar[str] = "slots"
    """Name of the setting that says how many slots a job needs, where one does."""

    imports: ClassVar[tuple[str, ...]] = ("pyarrow",)
    """Modules that the job's tasks import, on executors too."""

    run_dir: str = setting(
        help="Directory, on any filesystem URI, in which this run alone works.",
        section="Run",
        template="{{ run_dir }}",
        operational=True,
    )

    @property
    def slots(self) -> int:
        """Spark tasks that must run at the same time."""
        return 1


def check_model(name: str, uri: str) -> None:
    """Raise `SettingError` where a setting names a model by a web address, where none lies."""
    if uri.startswith(("http://", "https://")):
        raise SettingError(
            name,
            uri,
            "a model is not loaded from a web address",
            "Give a model directory, or models:/NAME/VERSION or models:/NAME@ALIAS; the registry"
            " is MLFLOW_TRACKING_URI's.",
        )


_MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def check_model_name(name: str) -> None:
    """Raise `SettingError` for a name that a model's URI or MLflow cannot have."""
    if not _MODEL_NAME.fullmatch(name):
        raise SettingError(
            "model_name",
            name,
            "a model's URI and MLflow cannot have it",
            "Use letters, digits, '_', '-' and '.' only.",
        )
