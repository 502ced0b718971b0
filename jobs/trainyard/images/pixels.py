"""How a network takes an image; the standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

KEY = "path"
"""The column of a table that names its images, unless it is said to be another."""


class BadImageError(Exception):
    """An image that cannot be labelled; its text says why and varies little, so that it counts."""


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """How a network that takes rows of [3, height, width] wants an image.

    Attributes:
        crop: share of the shorter side that is kept, from the middle.
        mean: of red, green and blue in 0..255, subtracted.
        std: likewise, divided by.
    """

    crop: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        """Refuse, with a ValueError, what no image could be made of."""
        if not 0 < self.crop <= 1:
            raise ValueError(f"the pixels' crop is {self.crop}, not above 0 and up to 1")
        colours: dict[str, Sequence[float]] = {"mean": self.mean, "std": self.std}
        for name, values in colours.items():
            if len(values) != 3 or not all(map(math.isfinite, values)):
                raise ValueError(f"the pixels' {name} is {list(values)}, not three numbers")
        if 0 in self.std:
            raise ValueError("the pixels' std holds a 0, which nothing can be divided by")

    @classmethod
    def from_mapping(cls, described: dict[str, Any] | None) -> Self | None:
        """What `dataclasses.asdict` made of it, or None."""
        if described is None:
            return None
        tuples = {name: tuple(described[name]) for name in ("mean", "std")}
        return cls(**{**described, **tuples})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What an image may cost, and how hard to try to get it.

    Attributes:
        bytes: most bytes of a file or an answer.
        hosts: from which hosts images are downloaded; see `hosts`.
        timeout: seconds to wait for a connection, and then for each piece of the answer.
        retries: how often a download that failed is tried again.
        connections: downloads from one host at a time.
    """

    bytes: int
    hosts: tuple[str, ...] = ()
    timeout: float = 1.0
    retries: int = 2
    connections: int = 4
