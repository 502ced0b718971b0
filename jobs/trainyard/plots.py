"""Pictures of classes and images, as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

mpl.use("Agg")
mpl.rcParams["text.parse_math"] = False  # a $ in the name of a column or a class is one

_NUMBERED = 20
"""Classes up to which a confusion matrix shows its counts and every class's name."""


def confusion(counts: np.ndarray[Any, Any], classes: Sequence[str | int], title: str) -> bytes:
    """A confusion matrix, coloured by the share of each true class.

    Args:
        counts: rows [label, prediction].
        classes: the label values.
        title: text above it.
    """
    from matplotlib import pyplot as plt

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    few = len(classes) <= _NUMBERED
    side = 2.6 + 0.45 * min(len(classes), _NUMBERED)
    figure, axes = plt.subplots(figsize=(side + 1.2, side), layout="constrained")
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the true class's rows", shrink=0.85)
    axes.set(title=title, xlabel="predicted class", ylabel="true class")
    if few:
        names = [str(value)[:14] for value in classes]
        axes.set_xticks(range(len(names)), names, rotation=45 if max(map(len, names)) > 2 else 0)
        axes.set_yticks(range(len(names)), names)
        for (label, prediction), count in np.ndenumerate(counts):
            if count:
                colour = "white" if shares[label, prediction] > 0.5 else "black"
                axes.text(
                    prediction,
                    label,
                    f"{count}",
                    ha="center",
                    va="center",
                    color=colour,
                    fontsize=8,
                )
    return png(figure)


def images(
    pixels: np.ndarray[Any, Any], captions: Sequence[str], title: str, caption_help: str
) -> bytes:
    """A grid of grey or colour images with a caption each.

    Args:
        pixels: [images, channels, height, width] with 1 or 3 channels, on any scale.
        captions: text above each image.
        title: text above the grid.
        caption_help: text below the grid that explains the captions.
    """
    from matplotlib import pyplot as plt

    columns = min(8, len(pixels))
    rows = -(-len(pixels) // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(1.15 * columns + 0.6, 1.4 * rows + 0.9),
        squeeze=False,
        layout="constrained",
    )
    low, high = float(pixels.min()), float(pixels.max())
    for axes in grid.flat:
        axes.axis("off")
    for axes, image, caption in zip(grid.flat, pixels, captions, strict=False):
        scaled = (np.moveaxis(image, 0, -1) - low) / max(high - low, 1e-12)
        axes.imshow(scaled, cmap="gray_r", vmin=0, vmax=1)
        axes.set_title(caption, fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.supxlabel(caption_help, fontsize=8)
    return png(figure)


def png(figure: Figure) -> bytes:
    """A figure as a PNG file; the figure is closed."""
    from matplotlib import pyplot as plt

    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    plt.close(figure)
    return data.getvalue()
