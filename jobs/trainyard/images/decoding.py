"""From a file's bytes to the pixels that a network takes, whatever kind of image it is."""

from __future__ import annotations

import io
import threading
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from trainyard.images.pixels import BadImageError

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
"""Told by the content, not by the name; none of them runs another program, as EPS would."""

MOST_PIXELS = 89_478_485
"""Above this an image is taken for a decompression bomb; Pillow's own bound."""

_LARGE_PIXELS = 16_000_000
_large = threading.Lock()
"""Held while a large image is decoded: one at a time, so that threads do not add up."""


def decode(data: bytes, height: int, width: int, crop: float) -> np.ndarray[Any, Any]:
    """The middle of an image, upright, its transparent parts white; of an animation the first.

    Args:
        data: the file's content.
        height: of the result.
        width: of the result.
        crop: share of the shorter side that is kept.

    Returns:
        uint8 [height, width, 3], red, green and blue.

    Raises:
        BadImageError: it is no image, damaged, or too large.
    """
    if not data:
        raise BadImageError("the image is empty")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise BadImageError(_BOMB)
            whole = image.width * image.height
            _reduce(image, max(height, width) / crop)
            # A progressive JPEG is held whole, however small it is decoded.
            held = whole if "progressive" in image.info else image.width * image.height
            with _large if held > _LARGE_PIXELS else nullcontext():
                return _pixels(image, height, width, crop)
    except BadImageError:
        raise
    except Image.DecompressionBombError as error:
        raise BadImageError(_BOMB) from error
    except UnidentifiedImageError as error:
        raise BadImageError(f"it is no image ({', '.join(FORMATS)})") from error
    # Whatever a decoder raises over a damaged file: OSError, SyntaxError, ValueError, struct.error.
    except Exception as error:
        if "truncated" in str(error) or isinstance(error, EOFError):
            raise BadImageError("the image is truncated") from error
        raise BadImageError(f"the image is damaged ({type(error).__name__})") from error


_BOMB = f"the image has more than {MOST_PIXELS} pixels"


def _reduce(image: Image.Image, least: float) -> None:
    """Let a JPEG be decoded at a half, a quarter or an eighth, its shorter side `least` or more."""
    scale = least / min(image.size)
    if scale < 1:
        image.draft(None, (int(image.width * scale) + 1, int(image.height * scale) + 1))


def _pixels(image: Image.Image, height: int, width: int, crop: float) -> np.ndarray[Any, Any]:
    upright = _upright(image)
    colours = _colours(upright)
    # Of the middle, what has the shape of the result.
    share = crop * min(colours.width / width, colours.height / height)
    across, down = share * width, share * height
    left, top = (colours.width - across) / 2, (colours.height - down) / 2
    small = colours.resize(
        (width, height),
        Image.Resampling.BICUBIC,
        box=(left, top, left + across, top + down),
        reducing_gap=2.0,
    )
    if small.mode == "RGBA":
        white = Image.new("RGBA", small.size, "white")
        small = Image.alpha_composite(white, small)
    return np.asarray(small.convert("RGB"))


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    with suppress(Exception):  # broken metadata of an image that can be seen
        ImageOps.exif_transpose(image, in_place=True)
    return image


def _colours(image: Image.Image) -> Image.Image:
    """An image in grey, in colours, or in colours that are transparent in places."""
    if image.mode.startswith(("I", "F")):
        return _grey(np.asarray(image))
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image if image.mode in ("L", "RGB") else image.convert("RGB")


def _grey(values: np.ndarray[Any, Any]) -> Image.Image:
    """Grey of more than 8 bits, as 8: of 16 bits, or of 0 to 1, or spread over what there is."""
    if not np.isfinite(values).all():
        raise BadImageError("the image holds numbers that are not finite")
    low, high = 0.0, 1.0 if values.dtype.kind == "f" else 65_535.0
    if values.min() < low or values.max() > high:
        low, high = float(values.min()), float(values.max())
    scale = 255 / ((high - low) or 1.0)
    return Image.fromarray(((values - low) * scale).round().astype(np.uint8))
