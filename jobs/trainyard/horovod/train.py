"""The training that every rank runs: the same steps on its own rows, one allreduce a step."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import horovod.torch as hvd
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own idiom
from torch import Tensor, nn

from trainyard import networks
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.horovod import checkpoints, optimizer
from trainyard.horovod.collective import sum_over_ranks
from trainyard.horovod.loader import Loader, Plan, Rows
from trainyard.rundir import EventWriter
from trainyard.specs import TrainHorovod

PROGRESS_SECONDS = 2.0
"""How often progress within an epoch is reported."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What came of one epoch.

    Attributes:
        number: from 1.
        loss: mean cross entropy of the training rows, each as it was before its step.
        accuracy: share of the training rows that were right, likewise.
        validation_loss: mean cross entropy of the validation rows, if any, after the epoch.
        validation_accuracy: share of them that were right.
        rows_per_second: training rows of all ranks a second.
    """

    number: int
    loss: float
    accuracy: float
    validation_loss: float | None
    validation_accuracy: float | None
    rows_per_second: float

    def figures(self) -> dict[str, float | None]:
        """The figures by name."""
        figures = dataclasses.asdict(self)
        del figures["number"]
        return figures

    @property
    def judged_by(self) -> float:
        """The loss that decides which epoch is best."""
        return self.loss if self.validation_loss is None else self.validation_loss


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a rank returns.

    Attributes:
        history: every epoch, also those of an earlier attempt that this one resumed.
        state: weights of the best epoch, by name; of rank 0 only.
        rows: rows of the training and the validation split.
        resumed: epochs that an earlier attempt had done.
    """

    history: tuple[Epoch, ...]
    state: dict[str, Tensor] | None
    rows: dict[str, int]
    resumed: int

    @property
    def best(self) -> Epoch:
        """The epoch whose weights were kept."""
        return best_of(self.history)

    @property
    def rows_per_second(self) -> float:
        """Training rows a second, over all ranks and epochs."""
        return len(self.history) / sum(1 / epoch.rows_per_second for epoch in self.history)


def train(spec: TrainHorovod, dataset: Dataset, *, claim: int) -> TrainResult:
    """Train a network on this rank's share of a dataset; Horovod is initialised.

    An attempt that finds checkpoints of the same settings and data goes on after the last of them.

    Args:
        spec: the job's settings.
        dataset: the prepared dataset.
        claim: number of the driver's claim, for the events that rank 0 writes.

    Raises:
        JobError: the loss is no longer finite.
    """
    torch.set_num_threads(1)
    if hvd.rank() > 0:
        return _Training(spec, dataset, None).run()
    with contextlib.closing(EventWriter(spec.run_dir, claim=claim, writer="rank0")) as events:
        return _Training(spec, dataset, events).run()


class _Training:
    """One rank's training; `events` is None on all ranks but the first."""

    def __init__(self, spec: TrainHorovod, dataset: Dataset, events: EventWriter | None) -> None:
        self.spec = spec
        self.dataset = dataset
        self.events = events
        self.plan, self.loader = self._share("train")
        self.validation_plan, self.validation = self._share("validation")
        torch.manual_seed(spec.seed)
        self.network = networks.build(spec.network, spec.network_params)
        self.gradients = _Gradients(self.network)
        self.optimizer = optimizer.make(spec, self.network.parameters(), hvd.size())
        self.history: list[Epoch] = []
        self.best: dict[str, Tensor] | None = None
        self.told = time.monotonic()

    def _share(self, split: str) -> tuple[Plan, Loader]:
        rows = self.dataset.rows(split)
        plan = Plan(rows=rows, size=hvd.size(), batch_size=self.spec.batch_size)
        return plan, Loader(self.dataset, split, plan, hvd.rank(), streaming=self.spec.streaming)

    def run(self) -> TrainResult:
        """Train what is left of the epochs."""
        self._start()
        resumed = len(self.history)
        for number in range(resumed + 1, self.spec.epochs + 1):
            epoch = self._epoch(number)
            self.history.append(epoch)
            if self.events is not None:
                self._keep(self.events, epoch)
        return TrainResult(
            history=tuple(self.history),
            state=None if self.events is None else self.best,
            rows={"train": self.plan.rows, "validation": self.validation_plan.rows},
            resumed=resumed,
        )

    def _start(self) -> None:
        """Give every rank the state of rank 0: the last checkpoint's, or the initial weights."""
        loaded = None if self.events is None else self._load(self.events)
        state = hvd.broadcast_object(loaded or self._state(), root_rank=0)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history = [Epoch(**epoch) for epoch in state["history"]]
        self.best = state["best"] or _copy(self.network)

    def _load(self, events: EventWriter) -> dict[str, Any] | None:
        state = checkpoints.load(self.spec.run_dir, events.note)
        if state is None:
            return None
        if state["made_by"] != self._made_by():
            events.note("the checkpoints are of other settings or data: training starts anew")
            return None
        events.note(f"training resumes after epoch {len(state['history'])}")
        return dict(state)

    def _state(self) -> dict[str, Any]:
        """What a checkpoint holds; `best` is None where the current weights are the best."""
        current = not self.history or self.history[-1] is best_of(self.history)
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": [dataclasses.asdict(epoch) for epoch in self.history],
            "best": None if current else self.best,
            "made_by": self._made_by(),
        }

    def _made_by(self) -> dict[str, Any]:
        return {"settings": self.spec.to_mapping(), "dataset": self.dataset.fingerprint}

    def _keep(self, events: EventWriter, epoch: Epoch) -> None:
        if epoch is best_of(self.history):
            self.best = _copy(self.network)
        if epoch.number % self.spec.checkpoint_every == 0 or epoch.number == self.spec.epochs:
            checkpoints.save(self.spec.run_dir, epoch.number, self._state())
        events.metric(epoch.number, **epoch.figures())
        events.progress("train", epoch.number, self.spec.epochs, "epoch", **epoch.figures())
        self.told = time.monotonic()

    def _epoch(self, number: int) -> Epoch:
        # Seeded by the epoch, so that a resumed training draws what an uninterrupted one would.
        seed = np.random.SeedSequence([self.spec.seed, number, hvd.rank()])
        torch.manual_seed(int(seed.generate_state(1)[0]))
        started = time.monotonic()
        sums = self._steps(number)
        seconds = time.monotonic() - started
        buffers = dict(self.network.named_buffers())
        hvd.broadcast_parameters(buffers, root_rank=0)
        sums = torch.cat([sums, self._validate()])
        sums = sum_over_ranks(sums, "sums", self.spec.stall_timeout)
        loss, right, validation_loss, validation_right = sums.tolist()
        rows, validation_rows = self.plan.rows, self.validation_plan.rows
        if not math.isfinite(validation_loss):
            raise self._not_finite("validation loss", validation_loss, f"after epoch {number}")
        return Epoch(
            number=number,
            loss=loss / rows,
            accuracy=right / rows,
            validation_loss=validation_loss / validation_rows if validation_rows else None,
            validation_accuracy=validation_right / validation_rows if validation_rows else None,
            rows_per_second=rows / seconds,
        )

    def _steps(self, number: int) -> Tensor:
        """Take an epoch's steps; return this rank's sums of the loss and of right rows."""
        self.network.train()
        sums = torch.zeros(2, dtype=torch.float64)
        batches = self.loader.shuffled(seed=self.spec.seed, epoch=number)
        totals = self.plan.totals()
        for step, (batch, total) in enumerate(zip(batches, totals, strict=True), start=1):
            self.gradients.zero()
            if len(batch):
                loss, right = self._score(batch)
                torch.autograd.backward(loss / total)
                self.gradients.loss.copy_(loss.detach() / total)
                sums += torch.stack([loss.detach(), right])
            mean = self.gradients.sum_over_ranks(self.spec.stall_timeout)
            if not math.isfinite(mean):
                where = f"in epoch {number}, step {step} of {len(totals)}"
                raise self._not_finite("training loss", mean, where)
            optimizer.step(self.optimizer)
            self._tell(number, step / len(totals), mean)
        return sums

    @torch.inference_mode()
    def _validate(self) -> Tensor:
        """This rank's sums of the loss and of right rows over its validation rows."""
        self.network.eval()
        sums = torch.zeros(2, dtype=torch.float64)
        for batch in self.validation.in_order():
            if len(batch):
                sums += torch.stack(self._score(batch))
        return sums

    def _score(self, batch: Rows) -> tuple[Tensor, Tensor]:
        """The sum of the loss over a batch, and how many of its rows are right."""
        scores = self.network(batch.features.view(-1, *self.spec.input_shape))
        loss = F.cross_entropy(scores, batch.labels, reduction="sum")
        return loss, (scores.argmax(dim=1) == batch.labels).sum()

    def _tell(self, number: int, part: float, loss: float) -> None:
        if self.events is not None and time.monotonic() - self.told >= PROGRESS_SECONDS:
            self.events.progress("train", number - 1 + part, self.spec.epochs, "epoch", loss=loss)
            self.told = time.monotonic()

    def _not_finite(self, name: str, value: float, where: str) -> JobError:
        scaled = f" x {hvd.size()} ranks" if self.spec.scale_learning_rate else ""
        return JobError(
            f"the {name} became {value} {where}.",
            f"Lower learning_rate (it is {self.spec.learning_rate}{scaled}), or scale the "
            "features. Nothing was published; the last checkpoint is from before.",
        )


class _Gradients:
    """All gradients of a network in one buffer, so that a step costs one allreduce.

    Attributes:
        loss: a place beside them for this rank's share of the step's loss, summed on the same way.
    """

    def __init__(self, network: nn.Module) -> None:
        trained = [p for p in network.parameters() if p.requires_grad]
        self._flat = torch.zeros(sum(p.numel() for p in trained) + 1)
        self.loss = self._flat[-1]
        parts = torch.split(self._flat[:-1], [p.numel() for p in trained])
        for parameter, part in zip(trained, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def zero(self) -> None:
        """Forget the last step's."""
        self._flat.zero_()

    def sum_over_ranks(self, timeout: float) -> float:
        """Add up the gradients of all ranks; return the sum of their losses."""
        sum_over_ranks(self._flat, "gradients", timeout)
        return self.loss.item()


def best_of(history: Sequence[Epoch]) -> Epoch:
    """The first epoch with the least loss."""
    return min(history, key=lambda epoch: epoch.judged_by)


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}
