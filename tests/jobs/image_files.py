"""Images of every kind that a folder may hold, made of a photograph that scikit-learn carries."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainyard.images.listing import sample_photographs

PALACE, DAISY = map(Path, sample_photographs())


@cache
def photograph() -> Image.Image:
    """The daisy, 640 x 427."""
    with Image.open(DAISY) as image:
        return image.convert("RGB")


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    """An image as a file's content."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


@cache
def kinds() -> dict[str, bytes]:
    """A file of each kind that shows the photograph."""
    image = photograph()
    grey = np.asarray(image.convert("L")).astype(np.uint16)
    alpha = image.convert("RGBA")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 270 degrees to see it upright
    frames = [image.transpose(Image.Transpose.ROTATE_90).resize(image.size)]
    return {
        "jpeg": encoded(image, "JPEG", quality=95),
        "png": encoded(image, "PNG"),
        "webp": encoded(image, "WEBP"),
        "cmyk": encoded(image.convert("CMYK"), "JPEG", quality=95),
        "palette": encoded(image.quantize(256), "PNG"),
        "grey": encoded(image.convert("L"), "JPEG", quality=95),
        "grey_16": encoded(Image.fromarray(grey * 257), "PNG"),
        "grey_float": encoded(Image.fromarray((grey / 255).astype(np.float32)), "TIFF"),
        "alpha": encoded(alpha, "PNG"),
        "grey_alpha": encoded(image.convert("LA"), "PNG"),
        "rotated": encoded(
            image.transpose(Image.Transpose.ROTATE_90), "JPEG", quality=95, exif=exif
        ),
        "animated": encoded(image, "GIF", save_all=True, append_images=frames),
    }


@cache
def broken() -> dict[str, bytes]:
    """Files that no network can label, by what is wrong with them."""
    jpeg, png = (encoded(photograph(), form) for form in ("JPEG", "PNG"))
    return {
        "empty": b"",
        "truncated": jpeg[: len(jpeg) // 2],
        "truncated_png": png[: len(png) // 2],
        "text": b"no image at all\n" * 9,
        "header_only": jpeg[:20],
        "bomb": encoded(Image.new("1", (9_500, 9_500)), "PNG"),
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
    }
