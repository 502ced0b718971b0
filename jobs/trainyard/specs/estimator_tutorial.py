"""The settings of `estimator_tutorial`."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.contract import setting
from trainyard.specs.common import RunDirectory


@dataclass(frozen=True, kw_only=True)
class EstimatorTutorial(RunDirectory):
    """Train on a DataFrame of digits with TorchEstimator, and judge what comes of it."""

    job = "estimator_tutorial"
    slots_setting = "num_proc"
    imports = ("torch", "horovod.torch", "pyarrow")

    store: str | None = setting(
        None,
        help="Path or URI of the estimator's store; a place in the run directory without it.",
        section="Data",
    )
    validation: float = setting(
        0.1, above=0.0, below=1.0, help="Share of the rows that validate.", section="Data"
    )
    num_proc: int = setting(
        2, minimum=1, maximum=4096, help="Horovod ranks, one Spark task each.", section="Training"
    )
    epochs: int = setting(
        15, minimum=1, maximum=100_000, help="Passes over the rows.", section="Training"
    )
    batch_size: int = setting(
        32, minimum=1, maximum=1_000_000, help="Rows of a rank's step.", section="Training"
    )
    learning_rate: float = setting(
        0.05, above=0.0, help="Of one rank; ranks multiply it.", section="Training"
    )
    seed: int = setting(
        0,
        minimum=0,
        maximum=2**31 - 1,
        help="Seed of split, weights and order.",
        section="Training",
    )

    @property
    def slots(self) -> int:
        """One for each rank."""
        return self.num_proc
