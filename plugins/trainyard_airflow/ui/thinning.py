"""Fewer points of a curve, such that it looks the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

Points = tuple[list[int], list[float | None]]
"""Steps, and the value at each; None where it was no number, at which the curve has a gap."""


def thin(values: Sequence[float], most: int) -> Points:
    """At most about `most` points of a curve: the least and the greatest of each stretch.

    What stands out in a curve of 10,000 epochs thus stands out in what is drawn of it.

    Args:
        values: at step 1, 2, ...; NaN where there is none.
        most: points to keep; the first and the last are always kept.
    """
    count = len(values)
    if count <= most:
        return list(range(1, count + 1)), [rounded(value) for value in values]
    stretches = max(1, most // 2)
    size = count / stretches
    kept = {0, count - 1}
    for stretch in range(stretches):
        first, end = round(stretch * size), min(count, round((stretch + 1) * size))
        part = values[first:end]
        numbers = [value for value in part if value == value]
        if numbers:
            kept.add(first + _index(part, min(numbers)))
            kept.add(first + _index(part, max(numbers)))
    places = sorted(place for place in kept if values[place] == values[place])
    return [place + 1 for place in places], [rounded(values[place]) for place in places]


def _index(part: Sequence[float], value: float) -> int:
    return next(place for place, other in enumerate(part) if other == value)


def rounded(value: float) -> float | None:
    """Six digits, which is more than a chart shows; None for what is no finite number."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
