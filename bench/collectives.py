#!/usr/bin/env python3
"""Training speed of two ranks, against torch.distributed and against two processes on their own.

    python bench/collectives.py [--repeats N] [--rows N] [--cycle-time-ms X]

Bars: two ranks >= 0.9 of the same loop over torch.distributed's Gloo; >= 0.8 of two independent
plain PyTorch processes at batch 512. Warm: the first epoch does not count. Rows lie in memory,
except in the line "streaming".
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from support.data import repeated_digits
from support.ranks import KINDS, measure
from support.tables import bar, machine, ratio, show

BATCHES = (128, 512)


def main() -> int:
    """Measure side by side; answer 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=4, help="the first of them only warms up")
    parser.add_argument("--cycle-time-ms", type=float, default=2.5)
    given = parser.parse_args()
    print(f"two ranks, {given.rows} rows of 784; {machine()}")
    holds = True
    with tempfile.TemporaryDirectory() as directory:
        dataset = repeated_digits(Path(directory), given.rows).directory
        for batch_size in BATCHES:
            settings = {
                "batch_size": batch_size,
                "epochs": given.epochs,
                "cycle_time_ms": given.cycle_time_ms,
                "checkpoint_every": given.epochs,
            }
            measured: dict[str, list[float]] = {kind: [] for kind in (*KINDS, "streaming")}
            for _ in range(given.repeats):
                for kind in KINDS:
                    measured[kind].append(speed(kind, dataset, streaming=False, **settings))
                measured["streaming"].append(speed("horovod", dataset, streaming=True, **settings))
            show(f"batch {batch_size}", "rows/s", measured)
            to_gloo = ratio("horovod / gloo", measured["horovod"], measured["gloo"])
            to_plain = ratio("horovod / plain", measured["horovod"], measured["plain"])
            ratio("gloo / plain", measured["gloo"], measured["plain"])
            ratio("streaming / horovod", measured["streaming"], measured["horovod"])
            holds &= bar("horovod / gloo", to_gloo, least=0.9)
            if batch_size == 512:
                holds &= bar("horovod / plain", to_plain, least=0.8)
    return 0 if holds else 1


def speed(kind: str, dataset: str, **settings: Any) -> float:
    """Rows a second of both processes together, the median of the epochs after the first."""
    answers = measure(kind, dataset, **settings)
    speeds: list[float] = [statistics.median(answer["rows_per_second"][1:]) for answer in answers]
    return sum(speeds) if kind == "plain" else speeds[0]


if __name__ == "__main__":
    sys.exit(main())
