"""Which pictures an evaluation has: those that its task and its rows can give."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from trainyard import curves, plots
from trainyard.bootstrap import Intervals
from trainyard.dataset import REGRESSION, Dataset
from trainyard.judgement import CHALLENGER, Judged
from trainyard.layout import safe_name
from trainyard.metrics import Classified, Regressed
from trainyard.mistakes import Mistake
from trainyard.slices import Slice

_MOST_CLASSES = 200
"""Above it a confusion matrix would be a blur."""


def draw(
    dataset: Dataset,
    split: str,
    judged: Judged,
    overall: Intervals,
    by_slice: list[Slice],
    wrong: list[Mistake],
    input_shape: Sequence[int],
) -> dict[str, bytes]:
    """The report's pictures by file name."""
    main = "rmse" if dataset.task == REGRESSION else "accuracy"
    metric = overall.metrics[CHALLENGER][main]
    title = (
        f"{judged.rows} rows of the {split} split\n"
        f"{main} {metric.value:.4g} ({metric.low:.4g} to {metric.high:.4g})"
    )
    model = judged.models[CHALLENGER]
    if isinstance(model, Regressed):
        unit = dataset.label
        pictures = {"residuals.png": curves.residuals(model.labels, model.predictions, title, unit)}
    else:
        pictures = _of_classes(dataset, judged, title)
        count = judged.rows - round(overall.metrics[CHALLENGER]["accuracy"].value * judged.rows)
        if wrong and len(input_shape) == 3 and input_shape[0] in (1, 3):
            pictures["mistakes.png"] = _mistakes(dataset, wrong, input_shape, count)
    for column, parts in groupby(by_slice, key=lambda part: part.column):
        pictures[f"slices-{safe_name(column)}.png"] = _bars(column, list(parts), main, metric.value)
    return pictures


def _of_classes(dataset: Dataset, judged: Judged, title: str) -> dict[str, bytes]:
    classes = dataset.classes
    models = {n: m for n, m in judged.models.items() if isinstance(m, Classified)}
    own = models[CHALLENGER]
    pictures = {}
    if len(classes) <= _MOST_CLASSES:
        counts = np.zeros((len(classes), len(classes)), np.int64)
        for cell, rows in judged.confusion[CHALLENGER].items():
            counts[cell] = rows
        pictures["confusion.png"] = plots.confusion(counts, classes, title)
    positive = f"{dataset.label} = {classes[1]}"
    pictures["calibration.png"] = curves.calibration(
        {name: model.calibration() for name, model in models.items()},
        title,
        positive if own.is_binary else "the predicted class",
    )
    if own.is_binary:
        found = {name: model.curves[1] for name, model in models.items()}
        head = f"{positive}\n{title}"
    else:
        found = {str(classes[c])[:20]: curve for c, curve in own.curves.items()}
        head = f"each {dataset.label} against the rest\n{title}"
    if found:
        pictures["curves.png"] = curves.curves(found, head)
    return pictures


def _mistakes(dataset: Dataset, wrong: list[Mistake], shape: Sequence[int], count: int) -> bytes:
    classes = dataset.classes
    return plots.images(
        np.stack([mistake.features for mistake in wrong]).reshape(-1, *shape),
        [f"{classes[m.label]} as {classes[m.prediction]}\n{m.probability:.2f}" for m in wrong],
        f"The {len(wrong)} surest mistakes of {count}",
        "true class as predicted class, and the prediction's probability",
    )


def _bars(column: str, parts: list[Slice], metric: str, overall: float) -> bytes:
    names = list(parts[0].found.metrics)
    return curves.slice_bars(
        [part.value for part in parts],
        [part.rows for part in parts],
        {name: [part.found.metrics[name][metric] for part in parts] for name in names},
        overall,
        (metric, column),
    )
