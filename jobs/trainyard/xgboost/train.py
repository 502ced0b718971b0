"""The training that every worker runs: its own rows, histograms added up by XGBoost's collective.

Rounds that draw rows, columns or trees at random are trained in segments of `checkpoint_every`
rounds, each from the trees as stored and with a seed of its own, so that a training that resumes at
a checkpoint draws what an uninterrupted one does. Others are trained in one go.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost as xgb
from xgboost import collective

from trainyard.barrier import usage
from trainyard.checkpoints import Checkpoints
from trainyard.dataset import CLASSIFICATION, Dataset
from trainyard.errors import JobError
from trainyard.rundir import AfterStep, EventWriter, rank0_events, tell_resumed
from trainyard.specs import TrainXGBoost
from trainyard.specs.class_weights import BALANCED, class_weight_values
from trainyard.xgboost import booster as boosters
from trainyard.xgboost import device, labels
from trainyard.xgboost.areas import Areas
from trainyard.xgboost.history import Round, Stopping, TrainResult, figure_of
from trainyard.xgboost.params import goal_of, params_of
from trainyard.xgboost.rows import Share

_MAX_BIN = 256
_USAGE_ROUNDS = 10
"""Rounds after which each worker's throughput and memory are told."""

_STATE = "trainyard"
"""Attribute of a checkpoint's trees that holds the history, and of which settings it is."""


def train(
    spec: TrainXGBoost,
    dataset: Dataset,
    *,
    claim: int,
    launch: int = 1,
    callbacks: Sequence[xgb.callback.TrainingCallback] = (),
    after: AfterStep | None = None,
) -> TrainResult:
    """Train trees on this worker's share of a dataset; XGBoost's collective is joined.

    An attempt that finds checkpoints of the same settings and data goes on after the last of them.

    Args:
        spec: the job's settings.
        dataset: the prepared dataset.
        claim: number of the driver's claim, for the events that rank 0 writes.
        launch: number of the launch under this claim, likewise.
        callbacks: XGBoost's, called on every worker; one that stops the training keeps what is
            there.
        after: called on rank 0 after each round; what it raises ends the training.

    Raises:
        JobError: the labels cannot be learnt, or a metric is not finite.
    """
    if collective.get_rank() > 0:
        return _Training(spec, dataset, None, callbacks).run()
    with rank0_events(spec.run_dir, claim=claim, launch=launch) as events:
        return _Training(spec, dataset, events, callbacks, after).run()


class _Training:
    """One worker's training; `events` is None on all workers but the first."""

    def __init__(
        self,
        spec: TrainXGBoost,
        dataset: Dataset,
        events: EventWriter | None,
        callbacks: Sequence[xgb.callback.TrainingCallback],
        after: AfterStep | None = None,
    ) -> None:
        self.spec = spec
        self.after = after
        self.callbacks = callbacks
        self.is_stopped = False
        self.dataset = dataset
        self.events = events
        self.goal = goal_of(spec, dataset)
        self.params = params_of(spec, dataset, device=device.choose(spec.device))
        self.size = collective.get_world_size()
        self.checkpoints = Checkpoints(run_dir=spec.run_dir, unit="round", suffix=".ubj")
        validates = dataset.rows("validation") > 0
        self.stopping = Stopping(
            figure=figure_of("validation" if validates else "train", self.goal.deciding),
            grows=self.goal.grows,
            rounds=spec.early_stopping_rounds,
            min_delta=spec.min_delta,
        )
        self.history: list[Round] = []
        self.matrices: dict[str, xgb.QuantileDMatrix] = {}
        self.lap = (0, 0.0)

    def run(self) -> TrainResult:
        """Train what is left of the rounds."""
        self._read()
        trees = self._start()
        resumed, began = len(self.history), time.monotonic()
        self.lap = (resumed, began)
        while len(self.history) < self.spec.rounds and not self._is_over():
            trees = self._segment(trees)
        assert trees is not None  # noqa: S101 - there is one round at least
        best = self.stopping.best(self.history)
        kept = trees[: best.number] if best.number < trees.num_boosted_rounds() else trees
        return TrainResult(
            history=tuple(self.history),
            best=best,
            booster=None if self.events is None else boosters.to_bytes(kept),
            rows={split: self.dataset.rows(split) for split in ("train", "validation")},
            resumed=resumed,
            seconds=time.monotonic() - began,
            workers=self.size,
        )

    def _is_over(self) -> bool:
        return self.is_stopped or self.stopping.is_over(self.history)

    def _read(self) -> None:
        """Hold a quantised copy of this worker's rows; every worker does so at the same time."""
        train = self._share("train")
        found = train.labels()
        labels.check(self.dataset, found)
        labels.check_range(self.dataset, self.goal.objective, "train", found)
        train = self._share("train", self._class_weights(found))
        max_bin = int(self.params.get("max_bin", _MAX_BIN))
        missing = self.spec.missing
        self.matrices["train"] = train.matrix(max_bin=max_bin, missing=missing)
        if self.dataset.rows("validation"):
            validation = self._share("validation", train.class_weights)
            self.matrices["validation"] = validation.matrix(
                max_bin=max_bin, missing=missing, like=self.matrices["train"]
            )
            own = self.matrices["validation"].get_label()
            labels.check_range(self.dataset, self.goal.objective, "validation", own)
        if self.dataset.weight is not None or train.class_weights is not None:
            for split, matrix in self.matrices.items():
                labels.check_weights(self.dataset, split, matrix)
        self.areas = Areas(self._share("validation"), self.matrices.get("validation"), self.goal)

    def _share(self, split: str, class_weights: npt.NDArray[np.float32] | None = None) -> Share:
        return Share(
            dataset=self.dataset,
            split=split,
            rank=collective.get_rank(),
            size=self.size,
            class_weights=class_weights,
        )

    def _class_weights(self, found: npt.NDArray[Any]) -> npt.NDArray[np.float32] | None:
        values = class_weight_values(self.spec.class_weights)
        if values is not None:
            return np.array(values, np.float32)
        if self.spec.class_weights != BALANCED or self.dataset.task != CLASSIFICATION:
            return None
        rows = labels.class_rows(self.dataset, found)
        balanced: npt.NDArray[np.float64] = rows.sum() / (len(rows) * np.maximum(rows, 1))
        return balanced.astype(np.float32)

    def _start(self) -> xgb.Booster | None:
        """Give every worker the trees and the history of rank 0's last checkpoint, if any."""
        loaded = b"" if self.events is None else self._load(self.events)
        if self.size > 1:
            loaded = collective.broadcast(loaded, 0)
        if not loaded:
            return None
        trees = boosters.from_bytes(loaded)
        state = json.loads(trees.attr(_STATE) or "{}")
        self.history = [Round(**done) for done in state["history"]]
        return trees

    def _load(self, events: EventWriter) -> bytes:
        data = self.checkpoints.load(events.note)
        if data is None:
            return b""
        state = json.loads(boosters.from_bytes(data).attr(_STATE) or "{}")
        if state.get("made_by") != self._made_by():
            events.note("the checkpoints are of other settings or data: training starts anew")
            return b""
        done = [Round(**kept) for kept in state["history"]]
        tell_resumed(events, self.spec.run_dir, "round", {r.number: r.figures for r in done})
        return data

    def _made_by(self) -> dict[str, Any]:
        made_by = {
            "settings": self.spec.decisive(),
            "workers": self.size,  # whose shares decide on the bins
            "dataset": self.dataset.fingerprint,
        }
        return dict(json.loads(json.dumps(made_by)))

    def _segment(self, trees: xgb.Booster | None) -> xgb.Booster:
        """Train the rounds that share a seed."""
        done, left = len(self.history), self.spec.rounds - len(self.history)
        rounds = min(self.spec.checkpoint_every, left) if self.spec.samples else left
        trained = xgb.train(
            {**self.params, "seed": _seed(self.spec.seed, done)},
            self.matrices["train"],
            rounds,
            evals=[(matrix, split) for split, matrix in self.matrices.items()],
            xgb_model=trees,
            callbacks=[_AfterRound(self), *self.callbacks],
            verbose_eval=False,
        )
        self.is_stopped = len(self.history) < done + rounds
        return trained

    def after_round(self, trees: xgb.Booster, log: dict[str, dict[str, list[float]]]) -> bool:
        """Note what came of a round; say whether it was the last one."""
        figures = {
            figure_of(split, metric): float(values[-1])
            for split, metrics in log.items()
            for metric, values in metrics.items()
        } | self.areas.figures(trees)
        done = Round(number=len(self.history) + 1, figures=figures)
        self.history.append(done)
        self._check_finite(done)
        over = self._is_over()
        self._tell_usage(done.number)
        if self.events is not None:
            self._keep(self.events, trees, done, over=over)
        return over

    def _tell_usage(self, number: int) -> None:
        """Tell each worker's rows a second and bytes of memory; all workers call it alike."""
        if number % _USAGE_ROUNDS:
            return
        (before, began), self.lap = self.lap, (number, time.monotonic())
        first, end = self._share("train").bounds
        rate = (end - first) * (number - before) / (self.lap[1] - began)
        used = np.zeros((2, self.size))
        used[:, collective.get_rank()] = rate, usage.memory()
        if self.size > 1:
            used = collective.allreduce(used.flatten(), collective.Op.SUM).reshape(2, -1)
        if self.events is not None:
            rates, memory = used.tolist()
            self.events.write("ranks", step=number, rows_per_second=rates, memory=memory)

    def _keep(self, events: EventWriter, trees: xgb.Booster, done: Round, *, over: bool) -> None:
        is_last = over or done.number == self.spec.rounds
        if is_last or done.number % self.spec.checkpoint_every == 0:
            history = [{"number": r.number, "figures": r.figures} for r in self.history]
            state = json.dumps({"history": history, "made_by": self._made_by()})
            trees.set_attr(**{_STATE: state})
            self.checkpoints.save(done.number, bytes(trees.save_raw("ubj")))
        events.metric(done.number, **done.figures)
        events.progress("train", done.number, self.spec.rounds, "round", **done.figures)
        if over:
            best = self.stopping.best(self.history)
            events.note(
                f"stopped after round {done.number} of {self.spec.rounds}: {self.stopping.figure} "
                f"did not get better in {self.spec.early_stopping_rounds} rounds; round "
                f"{best.number} is kept"
            )
        if self.after is not None:
            self.after(done.number, done.figures)

    def _check_finite(self, done: Round) -> None:
        for name, value in done.figures.items():
            if not math.isfinite(value):
                raise JobError(
                    f"{name} became {value} in round {done.number}.",
                    f"Lower learning_rate (it is {self.spec.learning_rate}), or check that the "
                    "labels suit objective and metrics and that all classes are in the split.",
                )


class _AfterRound(xgb.callback.TrainingCallback):
    """Calls the training after each round."""

    def __init__(self, training: _Training) -> None:
        self._training = training

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return self._training.after_round(model, evals_log)


def _seed(seed: int, done: int) -> int:
    """The seed of the rounds after those that are done."""
    if not done:
        return seed
    return int(np.random.SeedSequence([seed, done]).generate_state(1)[0]) % 2**31
