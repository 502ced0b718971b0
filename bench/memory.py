#!/usr/bin/env python3
"""Memory of a rank with four times the rows.

    python bench/memory.py [--repeats N] [--rows N]

The figure is the peak of RssAnon over the whole training, read every 20 ms inside the rank. Bar:
streaming, four times the rows take <= 1.15 of the memory. The in-memory mode is there to compare.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from support.data import repeated_digits
from support.ranks import Pair
from support.tables import bar, machine, ratio, show

EPOCHS = 2


def main() -> int:
    """Measure side by side; answer 1 where the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000)
    given = parser.parse_args()
    print(f"two ranks, batch 128, {EPOCHS} epochs; {machine()}")
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for rows in (given.rows, 4 * given.rows):
            dataset = repeated_digits(Path(directory) / str(rows), rows).directory
            for streaming in (True, False):
                name = f"{'streaming' if streaming else 'in memory'}, {rows} rows"
                measured[name] = [peak(dataset, streaming=streaming) for _ in range(given.repeats)]
    show("peak of a rank", "MB", measured)
    streamed, held, streamed_4, held_4 = measured.values()
    ratio("in memory, four times the rows", held_4, held)
    return 0 if bar("streaming", ratio("streaming", streamed_4, streamed), most=1.15) else 1


def peak(dataset: str, *, streaming: bool) -> float:
    """The larger of the two ranks' peaks in MB."""
    with Pair("horovod", dataset, streaming=streaming, epochs=EPOCHS) as pair:
        return max(pair.epoch()[1] for _ in range(EPOCHS)) / 1000


if __name__ == "__main__":
    sys.exit(main())
