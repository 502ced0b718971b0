"""What was measured, kept in a directory, so that a long benchmark can be run in pieces."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainyard.dataset import Dataset
from trainyard.layout import DATASET


class UnfinishedError(Exception):
    """The time of this piece is over, and something is left to measure."""


class Kept:
    """Measurements by name; a name is measured once.

    Args:
        directory: where measurements and datasets are.
        seconds: after so many of them nothing more is begun.
    """

    def __init__(self, directory: Path, seconds: float) -> None:
        self.directory = directory
        self._ends = time.monotonic() + seconds
        self._path = directory / "measured.jsonl"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self._known: dict[str, Any] = {}
        for line in lines:
            self._known.update(json.loads(line))

    def measured(self, name: str, work: Callable[[], Any]) -> Any:
        """What `work` gives, as JSON, or gave before.

        Raises:
            UnfinishedError: the time is over.
        """
        if name not in self._known:
            self._check_time()
            self._known[name] = work()
            print(f"  {name}: {json.dumps(self._known[name])}", flush=True)
            with self._path.open("a") as file:
                file.write(json.dumps({name: self._known[name]}) + "\n")
        return self._known[name]

    def dataset(self, name: str, make: Callable[[Path], Dataset]) -> Dataset:
        """A dataset that `make` writes into a directory, or wrote there before.

        Raises:
            UnfinishedError: the time is over.
        """
        directory = self.directory / name
        if (directory / DATASET).exists():
            return Dataset.read(str(directory))
        self._check_time()
        return make(directory)

    def _check_time(self) -> None:
        if time.monotonic() > self._ends:
            raise UnfinishedError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `kept` reads."""
    parser.add_argument("--keep", type=Path, help="directory of what an earlier piece measured")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin nothing more after so many"
    )


@contextmanager
def kept(given: argparse.Namespace) -> Iterator[Kept]:
    """What is kept where the options say, or for this run alone.

    Raises:
        SystemExit: with 3, where the time was over before all was measured.
    """
    try:
        if given.keep is None:
            with tempfile.TemporaryDirectory() as directory:
                yield Kept(Path(directory), given.seconds)
        else:
            given.keep.mkdir(parents=True, exist_ok=True)
            yield Kept(given.keep, given.seconds)
    except UnfinishedError:
        print(f"{given.seconds:g} s are over: run again with the same --keep for the rest")
        raise SystemExit(3) from None
