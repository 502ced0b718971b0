"""Many JPEG files of mixed sizes, made from the two photographs that scikit-learn carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from trainyard.images.listing import sample_photographs

SIDES = (240, 320, 480, 640, 1024, 1600)
"""The longer side of an image, in turn."""


def make_photographs(directory: Path, count: int) -> list[str]:
    """Write so many images, each another part of a photograph; return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    originals = [Image.open(path).convert("RGB") for path in sample_photographs()]
    random = np.random.default_rng(0)
    paths = []
    for number in range(count):
        image = originals[number % len(originals)]
        left, top = (int(random.integers(0, side // 5)) for side in image.size)
        part = image.crop((left, top, image.width - left // 2, image.height - top // 2))
        scale = SIDES[number % len(SIDES)] / max(part.size)
        size = int(part.width * scale), int(part.height * scale)
        path = directory / f"{number:05}.jpg"
        part.resize(size).save(path, quality=int(random.integers(70, 96)))
        paths.append(str(path))
    return paths
