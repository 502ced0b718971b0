"""Parts of a job's output that are committed one by one, so that a rerun makes what is missing.

<run directory>/commits/<work>/plan.json     what every attempt at this work keeps to
<run directory>/commits/<work>/00003.json    the entry of part 3; what it names counts from then on

<work> is a digest of all that the output follows from. Other work, such as that of another model,
finds no commits and starts anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from trainyard import store
from trainyard.layout import COMMITS, join

_PLAN = "plan.json"
_SUFFIX = ".json"


@dataclass(frozen=True, kw_only=True)
class Commits:
    """The parts of one piece of work; small, and travels to Spark's tasks.

    Attributes:
        directory: where the entries are.
        plan: what the first attempt at this work planned.
    """

    directory: str
    plan: dict[str, Any]

    @classmethod
    def open(
        cls,
        run_dir: str,
        work: Mapping[str, Any],
        plan: Mapping[str, Any],
        note: Callable[[str], None],
    ) -> Self:
        """Find the commits of earlier attempts at some work, or begin it.

        Args:
            run_dir: the run directory.
            work: all that the output follows from, as JSON.
            plan: how to go about it; an earlier attempt's plan wins.
            note: told when the commits of other work are thrown away.
        """
        name = hashlib.sha256(store.to_json(dict(work))).hexdigest()[:16]
        root = join(run_dir, COMMITS)
        for other in store.list_names(root):
            if other != name:
                note("the input, the model or the settings changed: every part is made anew")
                store.remove(join(root, other))
        directory = join(root, name)
        uri = join(directory, _PLAN)
        with store.writing(repr(uri)):
            store.create_bytes(uri, store.to_json(dict(plan)))
        return cls(directory=directory, plan=dict(store.read_json(uri)))

    def entries(self, known: Collection[int] = ()) -> dict[int, dict[str, Any]]:
        """The entry of every part that is committed, by its number, but for those known."""
        names = [n for n in store.list_names(self.directory) if n != _PLAN]
        numbers = {int(name.removesuffix(_SUFFIX)) for name in names} - set(known)
        return {number: dict(store.read_json(self._uri(number))) for number in sorted(numbers)}

    def commit(self, number: int, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Commit a part, and return the entry that counts: another attempt's, if it was first.

        Raises:
            TransientError: the entry cannot be written.
        """
        uri = self._uri(number)
        with store.writing(repr(uri)):
            if store.create_bytes(uri, store.to_json(dict(entry))):
                return dict(entry)
        return dict(store.read_json(uri))

    def forget(self, number: int) -> None:
        """Let a part be made again."""
        store.remove(self._uri(number))

    def _uri(self, number: int) -> str:
        return join(self.directory, f"{number:05d}{_SUFFIX}")
