"""Checkpoints of a training: whole objects whose names hold their digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from trainyard import store
from trainyard.layout import CHECKPOINTS, join


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The checkpoints of a run directory.

    Attributes:
        run_dir: the run directory.
        unit: what is counted: `epoch`, `round`.
        suffix: end of the files' names.
    """

    run_dir: str
    unit: str
    suffix: str

    def save(self, number: int, data: bytes) -> None:
        """Write the state after an epoch or round, and remove those that are no longer needed.

        The last before it stays. Later ones go: they are of a training that this one replaces.

        Args:
            number: of the epoch or round that is complete, from 1.
            data: the state.
        """
        name = f"{self.unit}-{number:06d}-{_digest(data)}{self.suffix}"
        directory = join(self.run_dir, CHECKPOINTS)
        with store.writing(f"the checkpoint of {self.unit} {number} in {directory!r}"):
            store.write_bytes(join(directory, name), data)
        earlier = [old for old in self._names() if self._number(old) < number]
        for old in self._names():
            if old not in (name, *earlier[-1:]):
                store.remove(join(directory, old))

    def load(self, note: Callable[[str], None]) -> bytes | None:
        """The last one that is sound, or None.

        Args:
            note: told of each checkpoint that is not sound.
        """
        for name in reversed(self._names()):
            data = store.read_bytes(join(self.run_dir, CHECKPOINTS, name))
            match = self._pattern.fullmatch(name)
            if match and _digest(data) == match[1]:
                return data
            note(f"checkpoint {name} is corrupt; falling back to the one before it")
        return None

    @property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(rf"{self.unit}-\d{{6}}-([0-9a-f]{{32}}){re.escape(self.suffix)}")

    def _number(self, name: str) -> int:
        return int(name.split("-")[1])

    def _names(self) -> list[str]:
        names = store.list_names(join(self.run_dir, CHECKPOINTS))
        return [name for name in names if self._pattern.fullmatch(name)]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
