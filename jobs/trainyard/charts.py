"""The figures behind the pictures of an evaluation, few enough for a page to draw them."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainyard.dataset import REGRESSION, Dataset
from trainyard.judgement import CHALLENGER, Judged
from trainyard.metrics import Classified, Curve, Floats, Measured, Regressed
from trainyard.mistakes import Miss, Mistake

_MOST_POINTS = 200
_MOST_DOTS = 2000
_MOST_CURVES = 10
_MOST_CLASSES = 100
_BINS = 40


def charts(
    dataset: Dataset,
    judged: Judged,
    wrong: Sequence[Mistake],
    missed: Sequence[Miss],
    input_shape: Sequence[int],
) -> dict[str, Any]:
    """What the report's charts.json holds; the page of a run draws it.

    Returns:
        `classes`, and for a classification `confusion` (rows [label][prediction]), `calibration`,
        `curves`, `mistakes`; for a regression `residuals`, `misses`. What
        has too many classes is left out.
    """
    made: dict[str, Any] = {"task": dataset.task, "label": dataset.label, "rows": judged.rows}
    model = judged.models[CHALLENGER]
    if dataset.task == REGRESSION or not isinstance(model, Classified):
        made["misses"] = [dataclasses.asdict(miss) for miss in missed]
        return {**made, "residuals": _residuals(model)}
    classes = dataset.classes
    made["classes"] = [str(value) for value in classes]
    if len(classes) <= _MOST_CLASSES:
        counts = np.zeros((len(classes), len(classes)), np.int64)
        for cell, rows in judged.confusion[CHALLENGER].items():
            counts[cell] = rows
        made["confusion"] = counts.tolist()
    models = {name: m for name, m in judged.models.items() if isinstance(m, Classified)}
    made["calibration"] = {name: _calibration(each) for name, each in models.items()}
    lines = (
        {name: each.curves[1] for name, each in models.items()}
        if model.is_binary
        else {str(classes[c]): curve for c, curve in model.curves.items()}
    )
    made["positive"] = str(classes[1]) if model.is_binary else None
    made["curves"] = _worst(lines)
    shape = list(input_shape) if len(input_shape) == 3 and input_shape[0] in (1, 3) else None
    made["mistakes"] = {"shape": shape, "rows": _mistakes(wrong, classes, shape)}
    return made


def _calibration(model: Classified) -> dict[str, list[float]]:
    """Bins that hold rows: how many, the mean probability, and the share that came true."""
    bins = model.calibration()
    filled = bins.rows > 0
    return {
        "rows": bins.rows[filled].tolist(),
        "confidence": bins.confidence[filled].tolist(),
        "share": bins.share[filled].tolist(),
    }


def _worst(lines: Mapping[str, Curve]) -> list[dict[str, Any]]:
    """ROC and precision-recall curves: those with the least area, where there are many."""
    found: list[dict[str, Any]] = []
    areas: list[float] = []
    for name, curve in lines.items():
        area, precision_area = curve.areas()
        if math.isnan(area):
            continue
        areas.append(area)
        true, false = curve.counts()
        roc = (np.append(0, false / false[-1]), np.append(0, true / true[-1]))
        found.append(
            {
                "name": name,
                "roc": {"area": area, **_thinned(*roc)},
                "precision_recall": {
                    "area": precision_area,
                    **_thinned(*curve.precision_recall()),
                },
            }
        )
    by_area = sorted(range(len(found)), key=lambda place: areas[place])
    return [found[place] for place in sorted(by_area[:_MOST_CURVES])]


def _thinned(x: Floats, y: Floats) -> dict[str, list[float]]:
    """Points at even distances along a curve, the ends among them."""
    if len(x) > _MOST_POINTS:
        along = np.append(0, np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y))))
        even = np.searchsorted(along, np.linspace(0, along[-1], _MOST_POINTS))
        at = np.unique(np.concatenate([[0], np.minimum(even, len(x) - 1), [len(x) - 1]]))
        x, y = x[at], y[at]
    return {"x": x.round(5).tolist(), "y": y.round(5).tolist()}


def _residuals(model: Measured) -> dict[str, Any]:
    """Some rows' residuals by prediction, and the histogram of all."""
    assert isinstance(model, Regressed)  # noqa: S101 - the dataset says so
    errors = model.labels - model.predictions
    shown = slice(None, None, -(-len(errors) // _MOST_DOTS))
    rows, edges = np.histogram(errors, bins=_BINS)
    return {
        "predicted": [float(f"{value:.6g}") for value in model.predictions[shown]],
        "residual": [float(f"{value:.6g}") for value in errors[shown]],
        "mean": float(errors.mean()),
        "histogram": {"edges": edges.tolist(), "rows": rows.tolist()},
    }


def _mistakes(
    wrong: Sequence[Mistake], classes: Sequence[str | int], shape: Sequence[int] | None
) -> list[dict[str, Any]]:
    rows = []
    for mistake in wrong:
        row: dict[str, Any] = {
            "key": mistake.key,
            "label": str(classes[mistake.label]),
            "prediction": str(classes[mistake.prediction]),
            "probability": mistake.probability,
        }
        if shape is not None:
            row["pixels"] = base64.b64encode(_pixels(mistake.features, shape)).decode()
        rows.append(row)
    return rows


def _pixels(features: Floats, shape: Sequence[int]) -> bytes:
    """An image as a byte a value, from its darkest to its lightest [height, width, channels]."""
    image = np.moveaxis(features.reshape(shape), 0, -1).astype(np.float64)
    low, high = image.min(), image.max()
    scaled = (image - low) / max(high - low, 1e-12)
    return bytes((scaled * 255).round().astype(np.uint8))
