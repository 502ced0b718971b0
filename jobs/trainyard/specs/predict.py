"""The settings of `predict`."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.contract import setting
from trainyard.specs.common import SOURCE_FORMATS, SPLITS, RunDirectory


@dataclass(frozen=True, kw_only=True)
class Predict(RunDirectory):
    """Score a table with a model and write the predictions as Parquet."""

    job = "predict"
    imports = ("pyarrow", "torch")

    source: str = setting(
        help="Path or URI of the rows, or of a prepared dataset's directory.", section="Source"
    )
    format: str = setting(
        "auto",
        choices=(*SOURCE_FORMATS, "dataset"),
        help="How the source is read.",
        section="Source",
    )
    split: str | None = setting(
        None,
        choices=SPLITS,
        help="Part of a prepared dataset to score; all without it.",
        section="Source",
    )
    key: str | None = setting(
        None,
        help="Column that identifies a row; without it the model's own key column.",
        section="Source",
    )
    model: str = setting(
        help="Model directory, or models:/NAME/VERSION or models:/NAME@ALIAS.", section="Model"
    )
    batch_size: int = setting(
        512, minimum=1, maximum=1_000_000, help="Rows scored at a time.", section="Model"
    )
