"""What boosted trees go by: importances, and SHAP values of a sample of the rows."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import xgboost as xgb

from trainyard.dataset import KEY, Dataset
from trainyard.pieces import Arrays, PieceReader, pieces
from trainyard.xgboost import plots
from trainyard.xgboost.rows import feature_types

_GAINS = ("weight", "gain", "total_gain", "cover", "total_cover")
"""XGBoost's importances; `weight` is how many splits go by a feature."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Files that explain a model.

    Attributes:
        files: content by name: importances as .csv and .png, and for a sample shap.parquet, .png.
        top: features by importance, the first one first.
    """

    files: dict[str, bytes]
    top: tuple[str, ...]


def explain(
    booster: xgb.Booster, dataset: Dataset, *, rows: int, missing: float | None
) -> Explanation:
    """Explain trees by their own figures, and by a sample of the validation or training rows.

    Files hold rows in the order of a hash of their keys, so that the first ones are a sample.

    Args:
        booster: the trees.
        dataset: on which they were trained.
        rows: most rows of the sample; none without any.
        missing: number that stands for a missing one, beside NaN.
    """
    names = feature_names(dataset)
    table: dict[str, Any] = {"feature": names}
    for kind in _GAINS:
        found = booster.get_score(importance_type=kind)
        table[kind] = [found.get(f"f{number}", 0.0) for number in range(dataset.width)]
    order = np.argsort(-np.array(table["total_gain"]), kind="stable")
    title = f"Importances of {dataset.width} features"
    files = {"importances.png": plots.importances(table["total_gain"], names, title)}
    split = "validation" if dataset.rows("validation") else "train"
    count = min(rows, dataset.rows(split))
    if count:
        parts = pieces(dataset, split, 0, count)
        sample = PieceReader(dataset).arrays(parts)
        shap = _shap(booster, dataset, sample, missing)
        strength = np.abs(shap[:, :, :-1]).mean(axis=(0, 1))
        table["mean_abs_shap"] = strength.tolist()
        order = np.argsort(-strength, kind="stable")
        keys = PieceReader(dataset).keys(parts)
        files["shap.parquet"] = _parquet(shap, keys, names, dataset)
        title = f"SHAP values of {count} rows of the {split} split"
        known = sample.features.copy()
        known[known == missing] = np.nan
        files["shap.png"] = plots.influences(shap, known, names, title)
    whole = pa.table(table).take(pa.array(order))
    written = io.BytesIO()
    pa_csv.write_csv(whole, written)
    files["importances.csv"] = written.getvalue()
    return Explanation(files=files, top=tuple(names[number] for number in order))


def feature_names(dataset: Dataset) -> list[str]:
    """A name for each number of a row's features."""
    fitted = dataset.preprocessing
    numbers = fitted.numbers if fitted else dataset.features
    count = fitted.values if fitted else dataset.width
    names = list(numbers)
    if len(numbers) != count:
        names = [f"{numbers[0]}[{place}]" for place in range(count)]
    rest = dataset.width - count
    if fitted and fitted.indexed:
        return [*names, *fitted.indexed]
    return [*names, *(f"categories[{place}]" for place in range(rest))]


def _shap(
    booster: xgb.Booster, dataset: Dataset, sample: Arrays, missing: float | None
) -> npt.NDArray[np.float32]:
    """SHAP values [rows, outputs, width + 1]; the last of a row is what it starts from."""
    matrix = xgb.DMatrix(
        sample.features,
        base_margin=sample.margins,
        missing=np.nan if missing is None else missing,
        feature_types=feature_types(dataset),
        enable_categorical=True,
        nthread=os.cpu_count() or 1,
    )
    found = booster.predict(matrix, pred_contribs=True)
    return found[:, None, :] if found.ndim == 2 else found


def _parquet(
    shap: npt.NDArray[np.float32], keys: pa.Array, names: list[str], dataset: Dataset
) -> bytes:
    """A line for each row, and for each class where there are more than two."""
    count, outputs, _ = shap.shape
    flat = shap.reshape(count * outputs, -1)
    columns = {KEY: keys.take(pa.array(np.repeat(np.arange(count), outputs)))}
    if outputs > 1:
        columns["class"] = pa.array([str(value) for value in dataset.classes] * count)
    columns |= {f"shap: {name}": pa.array(flat[:, place]) for place, name in enumerate(names)}
    columns["shap: start"] = pa.array(flat[:, -1])
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()
