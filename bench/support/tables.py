"""What a benchmark prints: the machine, medians with their spread, and whether a bar holds."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence


def machine() -> str:
    """The machine in a line, with how busy it is: a figure of a busy machine says little."""
    cores = os.cpu_count()
    return f"{platform.machine()}, {cores} cores, load {os.getloadavg()[0]:.1f}"


def show(title: str, unit: str, measured: Mapping[str, Sequence[float]]) -> None:
    """Print the median and the range of each thing measured."""
    print(f"\n{title}")
    width = max(map(len, measured))
    for name, values in measured.items():
        low, high = min(values), max(values)
        middle = statistics.median(values)
        print(
            f"  {name:<{width}}  {middle:10.1f} {unit}   {low:.1f} to {high:.1f}, n={len(values)}"
        )


def ratio(name: str, one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Print and return the ratios of what was measured side by side, one for each repeat."""
    ratios = [a / b for a, b in zip(one, other, strict=True)]
    middle = statistics.median(ratios)
    print(f"  {name}: {middle:.2f}   {min(ratios):.2f} to {max(ratios):.2f}")
    return ratios


def bar(what: str, ratios: Sequence[float], *, least: float = 0.0, most: float = 1e9) -> bool:
    """Print whether a median ratio keeps its bar, and return it."""
    middle = statistics.median(ratios)
    holds = least <= middle <= most
    wanted = f">= {least}" if least else f"<= {most}"
    print(f"  {'holds' if holds else 'MISSED'}: {what} {wanted}, here {middle:.2f}")
    return holds
