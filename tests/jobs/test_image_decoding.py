"""Pixels of images of every kind; nothing here needs Spark or a network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from image_files import broken, encoded, kinds, photograph
from PIL import Image

from trainyard.images import decoding
from trainyard.images.decoding import decode
from trainyard.images.pixels import BadImageError

SIZE, CROP = 224, 0.875


def decoded(data: bytes) -> np.ndarray[Any, Any]:
    return decode(data, SIZE, SIZE, CROP)


@pytest.fixture(scope="module")
def plain() -> np.ndarray[Any, Any]:
    """The middle of the photograph by Pillow alone."""
    image = photograph()
    side = CROP * min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BICUBIC, box=box)).astype(float)


def distance(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """How far the pixels are apart on average, of 255."""
    return float(np.abs(one.astype(float) - other).mean())


@pytest.mark.parametrize("kind", list(kinds()))
def test_every_kind_shows_the_photograph(kind: str, plain: np.ndarray[Any, Any]) -> None:
    found = decoded(kinds()[kind])
    assert (found.shape, found.dtype) == ((SIZE, SIZE, 3), np.uint8)
    wanted = plain
    if kind.startswith("grey"):
        wanted = np.repeat((plain @ [0.299, 0.587, 0.114])[..., None], 3, axis=2)
    assert distance(found, wanted) < {"palette": 12, "animated": 12, "cmyk": 6}.get(kind, 3)
    assert distance(found[::-1], wanted) > 30, "the measure tells an image that is upside down"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("empty", "the image is empty"),
        ("truncated", "the image is truncated"),
        ("truncated_png", "the image is truncated"),
        ("header_only", "the image is truncated|it is no image"),
        ("text", "it is no image"),
        ("postscript", "it is no image"),
        ("bomb", "more than 89478485 pixels"),
    ],
)
def test_what_cannot_be_seen_says_why(kind: str, reason: str) -> None:
    with pytest.raises(BadImageError, match=reason):
        decoded(broken()[kind])


def test_any_damage_is_a_reason_and_nothing_else() -> None:
    random = np.random.default_rng(0)
    for data in kinds().values():
        for _ in range(4):
            damaged = bytearray(data)
            for place in random.integers(0, len(data), 60):
                damaged[place] = random.integers(256)
            with suppress(BadImageError):
                assert decoded(bytes(damaged)).shape == (SIZE, SIZE, 3)


def test_transparent_parts_are_white() -> None:
    image = Image.new("RGBA", (40, 30), (255, 0, 0, 0))
    assert (decoded(encoded(image, "PNG")) == 255).all()


def test_sixteen_bits_keep_their_range() -> None:
    ramp = np.linspace(0, 65_535, SIZE * SIZE).reshape(SIZE, SIZE).astype(np.uint16)
    found = decode(encoded(Image.fromarray(ramp), "PNG"), SIZE, SIZE, 1.0)[..., 0]
    assert distance(found, ramp / 257) < 1
    dark = decode(encoded(Image.fromarray(ramp // 16), "PNG"), SIZE, SIZE, 1.0)[..., 0]
    assert dark.max() == 16


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_one_shade_of_grey_is_an_image(kind: Any) -> None:
    assert np.ptp(decoded(encoded(Image.fromarray(np.full((9, 9), 70_000, kind)), "TIFF"))) == 0


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_is_held_whole_is_decoded_alone(
    monkeypatch: pytest.MonkeyPatch, progressive: bool
) -> None:
    """A progressive one takes the memory of all its pixels, however small it is decoded."""
    monkeypatch.setattr(decoding, "_LARGE_PIXELS", 1_000_000)
    data = encoded(photograph().resize((1600, 1200)), "JPEG", progressive=progressive)
    decoding._large.acquire()
    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(decoded, data)
        done, _ = wait([task], timeout=0.5)
        decoding._large.release()
        assert bool(done) is not progressive
        assert task.result().shape == (SIZE, SIZE, 3)


def test_a_large_jpeg_is_decoded_at_a_reduced_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    load = Image.Image.load

    def noted(image: Any, *args: Any) -> Any:
        sizes.append(image.size)
        return load(image, *args)

    data = encoded(photograph().resize((3200, 2400)), "JPEG")
    monkeypatch.setattr(Image.Image, "load", noted)
    small = decoded(data)
    assert max(sizes) == (400, 300)
    assert distance(small, decoded(encoded(photograph().resize((400, 300)), "JPEG"))) < 5


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (223, 5)])
def test_odd_shapes(size: tuple[int, int]) -> None:
    assert (decoded(encoded(Image.new("RGB", size, "red"), "PNG")) == [255, 0, 0]).all()
