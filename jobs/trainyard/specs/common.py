"""What the settings of several jobs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trainyard.contract import Contract, setting

SPLITS = ("train", "validation", "test")
"""The parts of a prepared dataset."""

TASKS = ("classification", "regression")
"""What a model learns: which class a row has, or a number."""

SOURCE_FORMATS = ("auto", "parquet", "csv", "json", "idx", "table", "sample")
"""How a source is read; `auto` goes by the name."""


@dataclass(frozen=True, kw_only=True)
class RunDirectory(Contract):
    """What every job takes."""

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
