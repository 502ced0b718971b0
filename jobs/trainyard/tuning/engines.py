"""What a trial trains with, for either engine, on the driver and on executors."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from trainyard.dataset import Dataset
from trainyard.errors import SettingError
from trainyard.rundir import AfterStep
from trainyard.specs import TrainHorovod, TrainXGBoost, Tune
from trainyard.specs.tune_rules import AUTO

Training = TrainHorovod | TrainXGBoost


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What trials are compared by.

    Attributes:
        metric: its name among the figures of an epoch or round.
        grows: whether more of it is better.
    """

    metric: str
    grows: bool


def goal_of(spec: Tune, dataset: Dataset) -> Goal:
    """The goal of a search on a dataset.

    Raises:
        SettingError: the dataset has nothing to measure it on.
    """
    if spec.metric == AUTO:
        goal = _own_goal(spec, dataset)
    else:
        goal = Goal(metric=spec.metric, grows=bool(spec.grows))
    if goal.metric.startswith("validation_") and not dataset.rows("validation"):
        raise SettingError(
            "metric",
            spec.metric,
            f"the validation split of {dataset.directory!r} has 0 rows",
            "Prepare the dataset with a validation split.",
        )
    odd = {"accuracy": "classification", "rmse": "regression"}.get(
        goal.metric.removeprefix("validation_")
    )
    if spec.engine == "horovod" and odd not in (None, dataset.task):
        raise SettingError(
            "metric",
            spec.metric,
            f"the dataset is made for {dataset.task}",
            "Use validation_loss, or auto.",
        )
    return goal


def _own_goal(spec: Tune, dataset: Dataset) -> Goal:
    training = spec.trial(spec.run_dir, {})
    if isinstance(training, TrainHorovod):
        return Goal(metric="validation_loss", grows=False)
    from trainyard.xgboost import params
    from trainyard.xgboost.history import figure_of

    own = params.goal_of(training, dataset)
    return Goal(metric=figure_of("validation", own.deciding), grows=own.grows)


def steps_of(training: Training) -> int:
    """Epochs or rounds that a training may have."""
    return training.epochs if isinstance(training, TrainHorovod) else training.rounds


def most_steps(spec: Tune) -> int:
    """Most epochs or rounds that a trial of a search may have."""
    name = "epochs" if spec.engine == "horovod" else "rounds"
    tried = [int(end) for d in spec.dimensions if d.name == name for end in d.ends]
    return max([steps_of(spec.trial(spec.run_dir, {})), *tried])


def train(
    training: Training, dataset: Dataset, *, claim: int, after: AfterStep
) -> Mapping[str, float | None]:
    """Train in this process; return the figures of the epoch or round that is kept.

    Args:
        training: with one rank.
        dataset: the prepared dataset.
        claim: number of the driver's claim.
        after: called after each epoch or round; what it raises ends the training.

    Raises:
        JobError: the training failed for a reason of its own.
    """
    if isinstance(training, TrainHorovod):
        from trainyard.horovod.launch import InProcessLauncher
        from trainyard.horovod.train import train as train_network

        fn = functools.partial(train_network, training, dataset, claim=claim, after=after)
        [trained] = InProcessLauncher().run(fn, 1)
        return trained.best.figures()
    from trainyard.xgboost.train import train as train_trees

    return train_trees(training, dataset, claim=claim, after=after).best.figures
