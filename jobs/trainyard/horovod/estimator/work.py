"""What an estimator's ranks get: the model, the functions and the settings of a training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from trainyard.access import Access
from trainyard.dataset import Dataset
from trainyard.horovod.estimator.rows import ColumnReader, Columns
from trainyard.horovod.loader import MIXED_ROW_GROUPS, Loader, Plan
from trainyard.ml.part import TRAIN, VALIDATION

HELD_BYTES = 64 * 1024**2
"""Rows, as a rank has them in memory, that it shuffles together; fewer are read once."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A training; travels to every rank.

    Attributes:
        run_dir: where checkpoints go.
        access: how the store is opened.
        datasets: the rows of `train`, and of `validation` where there are any.
        columns: what a row consists of.
        made_by: settings that another result would follow from, and the digest of the rows.
        model: on the CPU.
        optimizer: of the model's parameters.
        losses: one for each label; or None where `constructors` give them.
        constructors: likewise.
        loss_weights: of each loss.
        metrics: groups of functions, of one function for all labels or of one for each.
        callbacks: called with each epoch.
        minibatch: takes a training step, where the usual one is not to.
        transform: changes a row.
        input_shapes: of each input.
        label_shapes: of each label, where the output's is not meant.
        epochs: passes over the rows.
        batch_size: rows of a rank's step.
        val_batch_size: rows validated at a time.
        steps: steps of an epoch, where not all rows.
        val_steps: batches validated by, likewise.
        passes: batches added up for one step.
        shuffle: whether rows come in another order each epoch.
        streaming: whether a rank that has more than `HELD_BYTES` reads its rows in each epoch
            instead of holding them.
        seed: of shuffling and dropout.
        device: `auto` or `cpu`.
        compression: `none` or `fp16`.
        stall_timeout: seconds to wait for the other ranks.
        verbose: whether rank 0 prints each epoch.
    """

    run_dir: str
    access: Access | None
    datasets: dict[str, Dataset]
    columns: Columns
    made_by: dict[str, Any]
    model: nn.Module
    optimizer: Any
    losses: Sequence[Callable[..., Any]] | None
    constructors: Sequence[Callable[..., Any]] | None
    loss_weights: Sequence[float]
    metrics: Sequence[Sequence[Callable[..., Any]]]
    callbacks: Sequence[Any]
    minibatch: Callable[..., Any] | None
    transform: Callable[[dict[str, Any]], dict[str, Any]] | None
    input_shapes: Sequence[Sequence[int]]
    label_shapes: Sequence[Sequence[int]] | None
    epochs: int
    batch_size: int
    val_batch_size: int
    steps: int | None
    val_steps: int | None
    passes: int
    shuffle: bool
    streaming: bool
    seed: int
    device: str
    compression: str
    stall_timeout: int
    verbose: int
    clip_norm: float | None = None

    @property
    def validates(self) -> bool:
        """Whether there are rows to validate by."""
        return VALIDATION in self.datasets

    def plan(self, split: str, ranks: int) -> Plan:
        """How a split's rows are shared among ranks and steps."""
        size = self.batch_size if split == TRAIN else self.val_batch_size
        return Plan(rows=self.datasets[split].rows(split), size=ranks, batch_size=size)

    def loader(self, split: str, plan: Plan, rank: int) -> Loader:
        """A rank's rows of a split.

        They are held where they fit the buffer in which rows would be shuffled anyway.
        """
        dataset, columns = self.datasets[split], self.columns
        fit = HELD_BYTES // (4 * sum(columns.numbers(tuple(columns.widths))))
        first, end = plan.bounds(rank)
        group = max(rows for file in dataset.splits[split] for rows in file.row_groups)
        return Loader(
            dataset,
            split,
            plan,
            rank,
            streaming=self.streaming and end - first > fit,
            reader=ColumnReader(dataset, columns),
            mixed=max(MIXED_ROW_GROUPS, fit // group),
        )
