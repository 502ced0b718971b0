"""The training that each of an estimator's ranks runs: the same steps, one allreduce a step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import horovod.torch as hvd
import numpy as np
import torch
from torch import Tensor

from trainyard import store
from trainyard.errors import JobError
from trainyard.horovod import checkpoints, device, optimizer
from trainyard.horovod.collective import broadcast, broadcast_bytes, sum_over_ranks
from trainyard.horovod.estimator.judge import Judge, losses_of
from trainyard.horovod.estimator.minibatch import StepOptimizer, arguments
from trainyard.horovod.estimator.work import Work
from trainyard.horovod.gradients import Gradients
from trainyard.horovod.objective import Judged
from trainyard.horovod.pieces import Rows
from trainyard.layout import join
from trainyard.ml.part import TRAIN, VALIDATION
from trainyard.rundir import finite

State = dict[str, Any]


def train(work: Work) -> State | None:
    """Train on this rank's share of the rows; Horovod is initialised.

    Returns:
        On rank 0 the last state: `network`, `optimizer`, `history` and the weights of the `best`
        epoch, as a checkpoint holds them.

    Raises:
        JobError: the loss is no longer finite.
    """
    if work.access is not None:
        work.access.grant()
    torch.set_num_threads(1)
    return _Training(work).run()


def judged_by(epoch: dict[str, Any]) -> float:
    """The loss that decides which epoch is best."""
    return float(epoch.get(VALIDATION, epoch[TRAIN])["loss"])


class _Training:
    """One rank's training."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.is_first = hvd.rank() == 0
        self.device = device.choose(work.device)
        optimizer.without_compiler()
        # The model and its optimizer came in one piece, so that they share the parameters.
        self.network = work.model.to(self.device)
        self.optimizer = work.optimizer
        self.plans = {split: work.plan(split, hvd.size()) for split in work.datasets}
        self.loaders = {
            split: work.loader(split, plan, hvd.rank()) for split, plan in self.plans.items()
        }
        self.judge = Judge(work, self.network, self.device, losses_of(work, self.network))
        self.gradients = Gradients(self.network, work, weighted=False)
        self.stepping = (
            StepOptimizer(self.optimizer, self.gradients, self.network) if work.minibatch else None
        )
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] | None = None

    def run(self) -> State | None:
        """Train what is left of the epochs."""
        self._start()
        self._call("on_train_begin")
        while len(self.history) < self.work.epochs:
            number = len(self.history)
            self._call("on_epoch_begin", number)
            epoch = self._epoch(number)
            self.history.append(epoch)
            if self.is_first:
                self._keep(epoch)
            self._call("on_epoch_end", number, epoch)
        self._call("on_train_end", self.history[-1])
        return self._state() if self.is_first else None

    def _start(self) -> None:
        """Give every rank the state of rank 0: the last checkpoint's, or the initial one."""
        own = b""
        if self.is_first:
            found = checkpoints.load(self.work.run_dir, print)
            own = checkpoints.to_bytes(found or self._state(scaled=False))
        state = checkpoints.from_bytes(broadcast_bytes(own, "state", self.work.stall_timeout))
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] *= hvd.size()
        self.history, self.best = state["history"], state["best"]

    def _state(self, *, scaled: bool = True) -> State:
        """What a checkpoint holds; the learning rate is one rank's, so that others may resume."""
        kept = self.optimizer.state_dict()
        for group in kept["param_groups"] if scaled else ():
            group["lr"] /= hvd.size()
        state: State = checkpoints.on_cpu(
            {
                "network": dict(self.network.state_dict()),
                "optimizer": kept,
                "history": list(self.history),
                "best": self.best,
                "made_by": self.work.made_by,
            }
        )
        return state

    def _keep(self, epoch: dict[str, Any]) -> None:
        if epoch is min(self.history, key=judged_by):
            state = self.network.state_dict()
            self.best = {name: value.detach().cpu().clone() for name, value in state.items()}
        checkpoints.save(self.work.run_dir, len(self.history), self._state())
        store.write_json(join(self.work.run_dir, "logs", "history.json"), finite(self.history))
        if self.work.verbose:
            print(f"epoch {epoch['epoch'] + 1} of {self.work.epochs}: {epoch}", flush=True)

    def _call(self, moment: str, *given: Any) -> None:
        """Tell the user's callbacks; one that is a function hears of each epoch's end."""
        for callback in self.work.callbacks:
            method = getattr(callback, moment, None)
            if method is None and moment == "on_epoch_end" and callable(callback):
                method = callback
            if method is not None:
                method(*given)

    def _epoch(self, number: int) -> dict[str, Any]:
        # Seeded by the epoch, so that a resumed training draws what an uninterrupted one would.
        seed = np.random.SeedSequence([self.work.seed, number, hvd.rank()])
        torch.manual_seed(int(seed.generate_state(1)[0]))
        sums = [self._steps(number)]
        for name, buffer in self.network.named_buffers():
            buffer.copy_(broadcast(buffer.cpu(), f"buffer {name}", self.work.stall_timeout))
        if self.work.validates:
            sums.append(self._validate())
        whole = sum_over_ranks(torch.cat(sums), "sums", self.work.stall_timeout)
        parts = zip((TRAIN, VALIDATION), torch.split(whole, self.judge.sums), strict=False)
        told = {split: self.judge.told(part) for split, part in parts}
        for split, figures in told.items():
            self._check(split, figures["loss"], self._count())
        return {"epoch": number, **told}

    def _steps(self, number: int) -> Tensor:
        """Take an epoch's steps; return this rank's sums."""
        self.network.train()
        sums = torch.zeros(self.judge.sums, dtype=torch.float64)
        batches = self._batches(number)
        for start in range(0, self._count(), self.work.passes):
            several = list(itertools.islice(batches, self.work.passes))
            step = self._own_step if self.stepping else self._step
            sums += step(several, start)
        if self.stepping:
            self.stepping.finish()
        return sums

    def _count(self) -> int:
        return self.work.steps or self.plans[TRAIN].steps

    def _batches(self, number: int) -> Iterator[tuple[Rows, int]]:
        """An epoch's batches, and how many rows all ranks have in each; all rows again if few."""
        totals, loader = self.plans[TRAIN].totals(), self.loaders[TRAIN]
        left = self._count()
        for again in itertools.count():
            seed = self.work.seed if not again else self.work.seed + again * 2**32
            order = (
                loader.shuffled(seed=seed, epoch=number) if self.work.shuffle else loader.in_order()
            )
            yield from itertools.islice(zip(order, totals, strict=True), left)
            left -= len(totals)
            if left <= 0:
                return

    def _step(self, batches: list[tuple[Rows, int]], at: int) -> Tensor:
        """One step of the optimizer by the mean over some batches' rows on all ranks."""
        sums = torch.zeros(self.judge.sums, dtype=torch.float64)
        total = sum(rows for _, rows in batches)
        self.gradients.zero()
        for batch, _ in batches:
            if len(batch):
                outputs, labels, loss = self.judge.judge(batch)
                count = torch.tensor(float(len(batch)))
                self.gradients.add(Judged(loss=loss * count, weight=count, quality=count), total)
                sums += self.judge.summed(len(batch), loss, outputs, labels)
        self._check(TRAIN, self.gradients.reduce(), at + 1)
        optimizer.step(self.optimizer)
        return sums

    def _own_step(self, batches: list[tuple[Rows, int]], at: int) -> Tensor:
        """The user's own step for each batch; its optimizer takes the mean over the ranks."""
        sums = torch.zeros(self.judge.sums, dtype=torch.float64)
        for index, (batch, _) in enumerate(batches, at):
            inputs, labels, weights = self.judge.parts(batch)
            given = (self.network, self.stepping, self.judge.fitted, self.judge.loss)
            more = (inputs, labels, weights, self.work.passes, index)
            assert self.work.minibatch is not None  # noqa: S101 - or this is not called
            outputs, loss = self.work.minibatch(*arguments(self.work.minibatch, given + more))
            self._check(TRAIN, float(loss.detach()), index + 1)
            given_outputs, shaped = self.judge.fitted(outputs, labels)
            sums += self.judge.summed(len(batch), loss, given_outputs, shaped)
        return sums

    @torch.inference_mode()
    def _validate(self) -> Tensor:
        """This rank's sums over its rows to validate by."""
        self.network.eval()
        sums = torch.zeros(self.judge.sums, dtype=torch.float64)
        for batch in itertools.islice(self.loaders[VALIDATION].in_order(), self.work.val_steps):
            if len(batch):
                outputs, labels, loss = self.judge.judge(batch)
                sums += self.judge.summed(len(batch), loss, outputs, labels)
        return sums

    def _check(self, what: str, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            raise JobError(
                f"the {what} loss became {loss} in epoch {len(self.history) + 1}, step {step}.",
                f"Lower the optimizer's learning rate, which is multiplied by the {hvd.size()} "
                "ranks, or scale the features.",
            )
