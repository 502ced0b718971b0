"""Which rows each rank trains on, and in which batches and order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainyard.dataset import Dataset
from trainyard.errors import SettingError
from trainyard.horovod.pieces import Reader, Rows, concatenate
from trainyard.pieces import Piece, bounds, pieces

MIXED_ROW_GROUPS = 4
"""Row groups that a streaming rank holds and shuffles together, unless it is told otherwise."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How an epoch's rows are shared among ranks and steps; every rank computes the same one.

    A rank has a range of the rows; ranges differ by one row at most. Every rank takes the same
    number of steps, and its rows are spread evenly over them, so that no step has a few rows only.

    Attributes:
        rows: rows of the split.
        size: number of ranks.
        batch_size: most rows of a rank's step.
    """

    rows: int
    size: int
    batch_size: int

    @property
    def steps(self) -> int:
        """Steps of an epoch: what the largest share needs."""
        return -(-self._share(self.size - 1) // self.batch_size)

    def bounds(self, rank: int) -> tuple[int, int]:
        """First row of a rank and the one past its last."""
        return bounds(self.rows, rank, self.size)

    def batches(self, rank: int) -> list[int]:
        """Rows of a rank in each step; they may be none."""
        return self._spread(self._share(rank))

    def totals(self) -> list[int]:
        """Rows of all ranks in each step."""
        shares = Counter(self._share(rank) for rank in range(self.size))
        spread = [[count * rows for rows in self._spread(share)] for share, count in shares.items()]
        return [sum(step) for step in zip(*spread, strict=True)]

    def _share(self, rank: int) -> int:
        first, end = self.bounds(rank)
        return end - first

    def _spread(self, share: int) -> list[int]:
        steps = self.steps
        ends = [share * step // steps for step in range(1, steps + 1)]
        return [end - start for start, end in itertools.pairwise([0, *ends])]


def check_rows(rows: int, *, ranks: int, batch_size: int) -> None:
    """Refuse a training split that cannot fill one step.

    Raises:
        SettingError: showing the arithmetic.
    """
    if rows < ranks * batch_size:
        most = rows // ranks
        fix = f"Use a batch_size of {most} or less" if most else "Use fewer ranks"
        raise SettingError(
            "batch_size",
            batch_size,
            f"the training split has {rows} rows, fewer than one step's "
            f"{ranks} ranks x {batch_size} rows = {ranks * batch_size}",
            f"{fix}, or prepare more data.",
        )


class Loader:
    """Reads one rank's rows of a split, in another order each epoch.

    Args:
        dataset: the prepared dataset.
        split: its part.
        plan: how the split's rows are shared.
        rank: whose rows to read.
        streaming: read row groups in every epoch and hold a few at a time; otherwise hold all rows.
        reader: reads the rows, where that is not to be the reader of a prepared dataset.
        mixed: row groups that a streaming rank holds and shuffles together.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: str,
        plan: Plan,
        rank: int,
        *,
        streaming: bool,
        reader: Reader | None = None,
        mixed: int = MIXED_ROW_GROUPS,
    ) -> None:
        self._reader = reader or Reader(dataset)
        self._pieces = pieces(dataset, split, *plan.bounds(rank))
        self._batches = plan.batches(rank)
        self._rank = rank
        self._mixed = mixed
        self._held = None if streaming else self._reader.read(self._pieces)

    def class_rows(self) -> Tensor:
        """How many of the rank's rows each class has, float64 [classes]; reads labels alone."""
        return torch.from_numpy(self._reader.class_rows(self._pieces))

    def in_order(self) -> Iterator[Rows]:
        """The rank's batches, in the order of the files."""
        return self._cut(self._buffers(self._pieces, 1), None)

    def shuffled(self, *, seed: int, epoch: int) -> Iterator[Rows]:
        """The rank's batches in the order that (seed, epoch, rank) gives.

        A streaming rank shuffles its row groups, and the rows of a few groups with each other.
        """
        rng = np.random.default_rng([seed, epoch, self._rank])
        order = [self._pieces[i] for i in rng.permutation(len(self._pieces))]
        return self._cut(self._buffers(order, self._mixed), rng)

    def _cut(self, buffers: Iterator[Rows], rng: np.random.Generator | None) -> Iterator[Rows]:
        """Cut buffers into the rank's batches, each buffer shuffled when `rng` is given."""
        nothing = self._reader.read(())
        rows, order = nothing, torch.empty(0, dtype=torch.int64)
        for wanted in self._batches:
            parts = [rows.take(order[:wanted])] if len(order) or not wanted else []
            order = order[wanted:]
            while (missing := wanted - sum(map(len, parts))) > 0:
                rows = nothing  # forget a buffer before the next one is read
                rows = next(buffers)
                index = np.arange(len(rows)) if rng is None else rng.permutation(len(rows))
                order = torch.from_numpy(index)
                parts.append(rows.take(order[:missing]))
                order = order[missing:]
            yield concatenate(parts)

    def _buffers(self, order: Sequence[Piece], groups: int) -> Iterator[Rows]:
        if self._held is not None:
            yield self._held
            return
        for start in range(0, len(order), groups):
            yield self._reader.read(order[start : start + groups])
