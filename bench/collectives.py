#!/usr/bin/env python3
"""Training speed of two ranks, against torch.distributed and against two processes on their own.

    python bench/collectives.py [--rounds N] [--rows N] [--cycle-time-ms X]

Bars: two ranks >= 0.9 of the same loop over torch.distributed's Gloo; >= 0.8 of two independent
plain PyTorch processes at batch 512. All are started first and then take turns of an epoch each;
the first round does not count. Rows lie in memory, except in the line "streaming".
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

from support.data import repeated_digits
from support.ranks import KINDS, Pair
from support.tables import bar, machine, ratio, show

BATCHES = (128, 512)


def main() -> int:
    """Measure side by side; answer 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--cycle-time-ms", type=float, default=1.0)
    given = parser.parse_args()
    print(f"two ranks, {given.rows} rows of 784; {machine()}")
    holds = True
    with tempfile.TemporaryDirectory() as directory:
        dataset = repeated_digits(Path(directory), given.rows).directory
        for batch_size in BATCHES:
            measured = speeds(dataset, batch_size, given.rounds, given.cycle_time_ms)
            show(f"batch {batch_size}", "rows/s", measured)
            to_gloo = ratio("horovod / gloo", measured["horovod"], measured["gloo"])
            to_plain = ratio("horovod / plain", measured["horovod"], measured["plain"])
            ratio("gloo / plain", measured["gloo"], measured["plain"])
            ratio("streaming / horovod", measured["streaming"], measured["horovod"])
            holds &= bar("horovod / gloo", to_gloo, least=0.9)
            if batch_size == 512:
                holds &= bar("horovod / plain", to_plain, least=0.8)
    return 0 if holds else 1


def speeds(
    dataset: str, batch_size: int, rounds: int, cycle_time_ms: float
) -> dict[str, list[float]]:
    """Rows a second of both processes together, by kind and round."""
    settings = {
        "batch_size": batch_size,
        "epochs": rounds + 1,
        "cycle_time_ms": cycle_time_ms,
        "checkpoint_every": rounds + 1,
    }
    with contextlib.ExitStack() as stack:
        pairs = {
            name: stack.enter_context(
                Pair(kind, dataset, streaming=name == "streaming", **settings)
            )
            for name, kind in (*zip(KINDS, KINDS, strict=True), ("streaming", "horovod"))
        }
        measured: dict[str, list[float]] = {name: [] for name in pairs}
        for each_round in range(rounds + 1):
            for name, pair in pairs.items():
                speed, _ = pair.epoch()
                if each_round:
                    measured[name].append(speed)
    return measured


if __name__ == "__main__":
    sys.exit(main())
