"""The study of a search: Optuna's, kept where a killed driver's successor finds it.

Only the driver touches it, so that a SQLite file never has two writers, and its study's directory
is claimed. A trial that a dead driver left running is gone on with, under its number and with its
parameters; one that ended is never run again.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from trainyard.spaces import Dimension
from trainyard.specs import Tune
from trainyard.tuning.outcomes import Outcome

_RUN = "trainyard.run_dir"
_SEED = "trainyard.seed"
_PERMANENT = "trainyard.permanent"
_ATTEMPTS = "trainyard.attempts"
_MOST_ATTEMPTS = 3
"""Drivers that may die in a trial before it counts as failed."""

_LONGEST_CAUSE = 2000
"""Characters of a cause that are kept: MLflow's database takes no tag above 8,000."""


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A trial that is to be run.

    Attributes:
        number: in its study.
        values: what it tries, by the names of the space.
    """

    number: int
    values: dict[str, Any]


class Study:
    """A study that this process alone works on; its methods may be called from many threads.

    Args:
        study: Optuna's.
        spec: the search.
        space: what is searched.
        save: called after each change that must not be lost.
    """

    def __init__(
        self,
        study: optuna.Study,
        spec: Tune,
        space: tuple[Dimension, ...],
        save: Callable[[], None],
    ) -> None:
        self._study = study
        self._spec = spec
        self._space = {dimension.name: dimension for dimension in space}
        self._distributions = {d.name: _distribution(d) for d in space}
        self._save = save
        self._lock = threading.RLock()
        self._running: dict[int, optuna.Trial] = {}
        self._left = self._left_over()
        self._before = float(study.user_attrs.get(self._clock, 0.0))
        self._began = time.monotonic()

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials, in the order of their numbers."""
        with self._lock:
            return self._study.get_trials()

    @property
    def own(self) -> list[FrozenTrial]:
        """The trials of this run."""
        with self._lock:
            return [t for t in self._known() if t.user_attrs.get(_RUN) == self._spec.run_dir]

    @property
    def best(self) -> FrozenTrial | None:
        """The complete trial with the best value; None where none is complete."""
        complete = [t for t in self.trials if t.state == TrialState.COMPLETE]
        best = max if self._study.direction.name == "MAXIMIZE" else min
        return best(complete, key=lambda t: float(t.value or 0.0), default=None)

    @property
    def over(self) -> str:
        """Why no further trial begins; empty while one may."""
        with self._lock:
            budget = self._spec.time_budget
            if len(self.own) >= self._spec.trials:
                return f"its {self._spec.trials} trials have begun"
            if budget is not None and self._seconds() >= budget:
                return "the time budget is over"
            settled = self._settled()
            most = math.prod(dimension.size for dimension in self._space.values())
            if len(settled) >= most:
                tried = {json.dumps(trial.params, sort_keys=True) for trial in settled}
                if len(tried) >= most:
                    return f"all that the space holds has been tried: {len(tried)} in number"
            return ""

    @property
    def inner(self) -> optuna.Study:
        """Optuna's own study, for its importances."""
        return self._study

    def values(self, trial: FrozenTrial) -> dict[str, Any]:
        """What a trial tries, by the names of the space."""
        return {
            name: self._space[name].labels[value] if self._space[name].choices else value
            for name, value in trial.params.items()
        }

    def begin(self) -> Begun | None:
        """The next trial to run, or None where the budget is used up."""
        with self._lock:
            if self._left:
                return self._started(self._left.pop(0))
            while not self.over:
                self._study.sampler = self._sampler(len(self._known()))
                trial = self._study.ask(self._distributions)
                trial.set_user_attr(_RUN, self._spec.run_dir)
                trial.set_user_attr(_SEED, self._spec.seed)
                same = [t for t in self._settled() if t.params == trial.params]
                if not same:
                    return self._started(trial)
                self._repeat(trial, same[0])
            return None

    def report(self, number: int, step: int, value: float | None) -> bool:
        """Note a trial's metric at a step; say whether it is to be given up."""
        with self._lock:
            trial = self._running.get(number)
            if trial is None:
                return True  # a task that Spark had lost, and whose trial has ended since
            if value is None:
                return False
            trial.report(value, step)
            return bool(trial.should_prune())

    def finish(self, number: int, outcome: Outcome) -> FrozenTrial:
        """Note how a trial ended."""
        with self._lock:
            trial = self._running.pop(number)
            trial.set_user_attr("seconds", round(outcome.seconds, 3))
            trial.set_user_attr("worker", outcome.worker)
            state = TrialState.PRUNED if outcome.value is None else TrialState.COMPLETE
            if outcome.cause is not None:
                trial.set_user_attr("cause", outcome.cause[:_LONGEST_CAUSE])
                trial.set_user_attr("fix", outcome.fix)
                trial.set_user_attr(_PERMANENT, outcome.permanent)
                state = TrialState.FAIL
            ended = self._study.tell(trial, outcome.value, state)
            self._keep()
            return ended

    @property
    def _clock(self) -> str:
        return f"trainyard.seconds {self._spec.run_dir}"

    def _seconds(self) -> float:
        """Seconds of this run's drivers so far."""
        return self._before + time.monotonic() - self._began

    def _keep(self) -> None:
        self._study.set_user_attr(self._clock, self._seconds())
        self._save()

    def _started(self, trial: optuna.Trial) -> Begun:
        attempts = trial.user_attrs.get(_ATTEMPTS, 0) + 1
        trial.set_user_attr(_ATTEMPTS, attempts)
        self._running[trial.number] = trial
        self._keep()
        return Begun(number=trial.number, values=self.values(self._known()[trial.number]))

    def _repeat(self, trial: optuna.Trial, same: FrozenTrial) -> None:
        """End a trial as the settled one did that tried the same."""
        for step, value in same.intermediate_values.items():
            trial.report(value, step)
        for name in ("cause", "fix", _PERMANENT):
            if name in same.user_attrs:
                trial.set_user_attr(name, same.user_attrs[name])
        trial.set_user_attr("same_as", same.number)
        self._study.tell(
            trial, same.value if same.state == TrialState.COMPLETE else None, same.state
        )

    def _known(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _settled(self) -> list[FrozenTrial]:
        """The trials that would end the same again, by the same seed: a lost task would not."""
        return [
            trial
            for trial in self._known()
            if trial.state.is_finished()
            and trial.user_attrs.get(_SEED) == self._spec.seed
            and (trial.state != TrialState.FAIL or trial.user_attrs.get(_PERMANENT))
        ]

    def _left_over(self) -> list[optuna.Trial]:
        """The trials that a dead driver left running; those that cannot be gone on with end."""
        found = []
        for trial in self._study.get_trials(states=(TrialState.RUNNING,)):
            attempts = trial.user_attrs.get(_ATTEMPTS, 0)
            whole = set(trial.params) == set(self._distributions)
            if whole and attempts < _MOST_ATTEMPTS:
                found.append(optuna.Trial(self._study, trial._trial_id))
                found[-1].set_user_attr(_RUN, self._spec.run_dir)
                found[-1].set_user_attr(_SEED, self._spec.seed)
                continue
            cause = (
                f"its driver died {attempts} times while it ran"
                if whole
                else "its driver died before it had its values"
            )
            self._study._storage.set_trial_user_attr(trial._trial_id, "cause", cause)
            self._study.tell(trial.number, state=TrialState.FAIL)
        return found

    def _sampler(self, number: int) -> BaseSampler:
        """The sampler of a trial, seeded by its number: a resumed search goes on as it would."""
        seed = int(np.random.SeedSequence([self._spec.seed, number]).generate_state(1)[0])
        if self._spec.sampler == "random":
            return RandomSampler(seed=seed)
        return TPESampler(n_startup_trials=self._spec.startup_trials, seed=seed)


def _distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.choices:
        return CategoricalDistribution(list(dimension.labels))
    low, high, step, log = dimension.low, dimension.high, dimension.step, dimension.log
    if dimension.whole:
        return IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return FloatDistribution(low, high, log=log, step=step)
