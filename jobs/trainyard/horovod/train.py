"""The training that every rank runs: the same steps on its own rows, one allreduce a step."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import horovod.torch as hvd
import numpy as np
import torch
from torch import Tensor, nn

from trainyard import networks
from trainyard.barrier import usage
from trainyard.dataset import CLASSIFICATION, Dataset
from trainyard.errors import JobError
from trainyard.horovod import checkpoints, device, optimizer, schedule
from trainyard.horovod.collective import broadcast, broadcast_bytes, sum_over_ranks
from trainyard.horovod.gradients import Gradients
from trainyard.horovod.history import Epoch, TrainResult, best_of, has_stalled
from trainyard.horovod.loader import Loader, Plan
from trainyard.horovod.objective import Judged, Objective, objective_of
from trainyard.horovod.pieces import Rows
from trainyard.rundir import AfterStep, EventWriter, rank0_events, tell_resumed
from trainyard.specs import TrainHorovod

PROGRESS_SECONDS = 2.0
"""How often progress within an epoch is reported."""


def train(
    spec: TrainHorovod,
    dataset: Dataset,
    *,
    claim: int,
    launch: int = 1,
    after: AfterStep | None = None,
) -> TrainResult:
    """Train a network on this rank's share of a dataset; Horovod is initialised.

    An attempt that finds checkpoints of the same data and decisive settings goes on after the last.

    Args:
        spec: the job's settings.
        dataset: the prepared dataset.
        claim: number of the driver's claim, for the events that rank 0 writes.
        launch: number of the launch under this claim, likewise.
        after: called on rank 0 after each epoch, once it is kept; what it raises ends the training.

    Raises:
        JobError: the loss is no longer finite.
    """
    torch.set_num_threads(1)
    if hvd.rank() > 0:
        return _Training(spec, dataset, None).run()
    with rank0_events(spec.run_dir, claim=claim, launch=launch) as events:
        return _Training(spec, dataset, events, after).run()


class _Training:
    """One rank's training; `events` is None on all ranks but the first."""

    def __init__(
        self,
        spec: TrainHorovod,
        dataset: Dataset,
        events: EventWriter | None,
        after: AfterStep | None = None,
    ) -> None:
        self.spec = spec
        self.after = after
        self.dataset = dataset
        self.events = events
        self.device = device.choose(spec.device)
        self.plan, self.loader = self._share("train")
        self.validation_plan, self.validation = self._share("validation")
        torch.manual_seed(spec.seed)
        self.network = networks.build(spec.network, spec.network_params).to(self.device)
        self.objective = self._objective()
        self.gradients = Gradients(self.network, spec, weighted=self.objective.weighted)
        self.rate = optimizer.rate(spec, hvd.size())
        self.optimizer = optimizer.make(spec, self.network.parameters(), hvd.size())
        self.history: list[Epoch] = []
        self.best: dict[str, Tensor] | None = None
        self.used: list[float] = []
        self.told = time.monotonic()

    def _share(self, split: str) -> tuple[Plan, Loader]:
        rows = self.dataset.rows(split)
        plan = Plan(rows=rows, size=hvd.size(), batch_size=self.spec.batch_size)
        return plan, Loader(self.dataset, split, plan, hvd.rank(), streaming=self.spec.streaming)

    def _objective(self) -> Objective:
        class_rows = None
        if self.spec.class_weights == "balanced":
            class_rows = self._sum(self.loader.class_rows(), "class rows")
        made = objective_of(self.spec, self.dataset, class_rows)
        if made.class_weights is None:
            return made
        return dataclasses.replace(made, class_weights=made.class_weights.to(self.device))

    def run(self) -> TrainResult:
        """Train what is left of the epochs."""
        self._start()
        resumed = len(self.history)
        while len(self.history) < self.spec.epochs and not self._stalled():
            epoch = self._epoch(len(self.history) + 1)
            self.history.append(epoch)
            if self.events is not None:
                self._keep(self.events, epoch)
        return TrainResult(
            history=tuple(self.history),
            state=None if self.events is None else self.best,
            rows={"train": self.plan.rows, "validation": self.validation_plan.rows},
            resumed=resumed,
        )

    def _stalled(self) -> bool:
        return has_stalled(self.history, self.spec.patience, self.spec.min_delta)

    def _start(self) -> None:
        """Give every rank the state of rank 0: the last checkpoint's, or the initial weights."""
        loaded = None if self.events is None else self._load(self.events)
        own = b"" if self.events is None else checkpoints.to_bytes(loaded or self._state())
        shared = broadcast_bytes(own, "state", self.spec.stall_timeout)
        state = checkpoints.from_bytes(shared)
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
        done = [Epoch(**epoch) for epoch in state["history"]]
        tell_resumed(events, self.spec.run_dir, "epoch", {e.number: e.figures() for e in done})
        return dict(state)

    def _state(self) -> dict[str, Any]:
        """What a checkpoint holds; `best` is None where the current weights are the best."""
        current = not self.history or self.history[-1] is best_of(self.history)
        state: dict[str, Any] = checkpoints.on_cpu(
            {
                "network": dict(self.network.state_dict()),
                "optimizer": self.optimizer.state_dict(),
                "history": [dataclasses.asdict(epoch) for epoch in self.history],
                "best": None if current else self.best,
                "made_by": self._made_by(),
            }
        )
        return state

    def _made_by(self) -> dict[str, Any]:
        return {"settings": self.spec.decisive(), "dataset": self.dataset.fingerprint}

    def _keep(self, events: EventWriter, epoch: Epoch) -> None:
        if epoch is best_of(self.history):
            self.best = _copy(self.network)
        stalled = self._stalled()
        is_last = stalled or epoch.number == self.spec.epochs
        if is_last or epoch.number % self.spec.checkpoint_every == 0:
            checkpoints.save(self.spec.run_dir, epoch.number, self._state())
        events.metric(epoch.number, **epoch.figures())
        events.progress("train", epoch.number, self.spec.epochs, "epoch", **epoch.figures())
        rates, memory = self.used[: hvd.size()], self.used[hvd.size() :]
        events.write("ranks", step=epoch.number, rows_per_second=rates, memory=memory)
        if stalled:
            events.note(
                f"stopped after epoch {epoch.number} of {self.spec.epochs}: the loss did not get "
                f"better in {self.spec.patience} epochs"
            )
        self.told = time.monotonic()
        if self.after is not None:
            self.after(epoch.number, epoch.figures())

    def _epoch(self, number: int) -> Epoch:
        # Seeded by the epoch, so that a resumed training draws what an uninterrupted one would.
        seed = np.random.SeedSequence([self.spec.seed, number, hvd.rank()])
        torch.manual_seed(int(seed.generate_state(1)[0]))
        started = time.monotonic()
        sums = self._steps(number)
        seconds = time.monotonic() - started
        self._share_buffers()
        both = self._sum(torch.cat([sums, self._validate(), self._usage(seconds)]), "sums")
        self.used = both[6:].tolist()
        return Epoch(
            number=number,
            rows_per_second=self.plan.rows / seconds,
            **self._means(both[:3], "train", number),
            **{
                f"validation_{k}": v
                for k, v in self._means(both[3:6], "validation", number).items()
            },
        )

    def _usage(self, seconds: float) -> Tensor:
        """This rank's rows a second and bytes of memory, and zeros for the others [2 x ranks]."""
        first, end = self.plan.bounds(hvd.rank())
        used = torch.zeros(2, hvd.size(), dtype=torch.float64)
        used[:, hvd.rank()] = torch.tensor([(end - first) / seconds, usage.memory()])
        return used.flatten()

    def _share_buffers(self) -> None:
        """Give every rank the buffers of rank 0, such as what batch normalisation keeps."""
        buffers = dict(self.network.named_buffers())
        for name, buffer in buffers.items():
            buffer.copy_(broadcast(buffer.cpu(), f"buffer {name}", self.spec.stall_timeout))

    def _means(self, sums: Tensor, split: str, number: int) -> dict[str, Any]:
        """Loss and accuracy or rmse of a split after an epoch, from their sums over all ranks."""
        loss, weight, quality = sums.tolist()
        rows = self.dataset.rows(split)
        if not rows:
            return {"loss": None}
        if not math.isfinite(loss):
            raise self._not_finite(f"{split} loss", loss, f"after epoch {number}")
        if weight <= 0:
            raise JobError(
                f"the weights of the {split} split's {rows} rows add up to {weight:g}.",
                f"Give some rows a weight above 0 in column {self.dataset.weight!r}, and set "
                "class_weights above 0 for a class that the split has.",
            )
        if self.dataset.task == CLASSIFICATION:
            return {"loss": loss / weight, "accuracy": quality / rows}
        return {"loss": loss / weight, "rmse": math.sqrt(quality / rows)}

    def _steps(self, number: int) -> Tensor:
        """Take an epoch's steps; return this rank's sums as `Judged.sums`."""
        self.network.train()
        sums = torch.zeros(3, dtype=torch.float64)
        batches = self.loader.shuffled(seed=self.spec.seed, epoch=number)
        totals, passes = self.plan.totals(), self.spec.backward_passes_per_step
        steps = [totals[start : start + passes] for start in range(0, len(totals), passes)]
        for step, parts in enumerate(steps):
            self.gradients.zero()
            for _ in parts:
                batch = next(batches)
                if len(batch):
                    judged = self._judge(batch)
                    self.gradients.add(judged, sum(parts))
                    sums += judged.sums()
            mean = self.gradients.reduce()
            if not math.isfinite(mean):
                where = f"in epoch {number}, step {step + 1} of {len(steps)}"
                raise self._not_finite("training loss", mean, where)
            self._take_step(number - 1 + step / len(steps), 1 / len(steps))
            self._tell(number - 1 + (step + 1) / len(steps), mean)
        return sums

    def _take_step(self, epoch: float, length: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * schedule.factor(self.spec, epoch, length)
        optimizer.step(self.optimizer)

    @torch.inference_mode()
    def _validate(self) -> Tensor:
        """This rank's sums over its validation rows."""
        self.network.eval()
        sums = torch.zeros(3, dtype=torch.float64)
        for batch in self.validation.in_order():
            if len(batch):
                sums += self._judge(batch).sums()
        return sums

    def _judge(self, batch: Rows) -> Judged:
        batch = batch.to(self.device)
        scores = self.network(batch.features.view(-1, *self.spec.input_shape))
        return self.objective.judge(scores, batch)

    def _sum(self, tensor: Tensor, name: str) -> Tensor:
        return sum_over_ranks(tensor, name, self.spec.stall_timeout)

    def _tell(self, done: float, loss: float) -> None:
        if self.events is not None and time.monotonic() - self.told >= PROGRESS_SECONDS:
            self.events.progress("train", done, self.spec.epochs, "epoch", loss=loss)
            self.told = time.monotonic()

    def _not_finite(self, name: str, value: float, where: str) -> JobError:
        scaled = f" x {hvd.size()} ranks" if self.spec.scale_learning_rate else ""
        return JobError(
            f"the {name} became {value} {where}.",
            f"Lower learning_rate (it is {self.spec.learning_rate}{scaled}), or scale the "
            "features. Nothing was published; the last checkpoint is from before.",
        )


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
