"""The settings of `evaluate`."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.contract import setting
from trainyard.specs.common import SPLITS, RunDirectory, check_model


@dataclass(frozen=True, kw_only=True)
class Evaluate(RunDirectory):
    """Score a model, and the champion on the same rows, and compare them."""

    job = "evaluate"
    imports = ("pyarrow", "torch")

    dataset: str = setting(help="Directory that holds the prepared dataset.json.", section="Data")
    split: str = setting(
        "test", choices=SPLITS, help="Part of the dataset to score.", section="Data"
    )
    model: str = setting(
        help="Model directory, or models:/NAME/VERSION or models:/NAME@ALIAS.", section="Model"
    )
    champion: str | None = setting(
        None,
        help="Model to compare with, such as models:/NAME@champion; none yet is no error.",
        section="Model",
    )
    mlflow_run_id: str | None = setting(
        None, help="MLflow run that receives the metrics and plots.", section="Tracking"
    )
    slices: tuple[str, ...] = setting(
        (),
        help="Columns, kept by prepare, for each value of which the metrics are given too.",
        section="Metrics",
    )
    confidence: float = setting(
        0.95, above=0.5, below=1.0, help="Confidence of the intervals.", section="Metrics"
    )
    bootstrap_samples: int = setting(
        500,
        minimum=100,
        maximum=10_000,
        help="Resamples of the rows behind the intervals.",
        section="Metrics",
    )
    bootstrap_rows: int = setting(
        200_000,
        minimum=1000,
        maximum=5_000_000,
        help="Most rows that are resampled; of more, a sample by hash of the key is.",
        section="Metrics",
    )
    seed: int = setting(0, minimum=0, help="Seed of the bootstrap.", section="Metrics")
    batch_size: int = setting(
        512, minimum=1, maximum=1_000_000, help="Rows scored at a time.", section="Model"
    )

    def check(self) -> None:
        """Raise `SettingError` for a model that cannot be."""
        check_model("model", self.model)
        if self.champion is not None:
            check_model("champion", self.champion)
