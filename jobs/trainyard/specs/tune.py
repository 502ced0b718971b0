"""The settings of `tune`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainyard.contract import setting
from trainyard.errors import SettingError
from trainyard.spaces import NOT_SEARCHED, Dimension, merged, space_of
from trainyard.specs import tune_rules
from trainyard.specs.common import RunDirectory
from trainyard.specs.train_horovod import TrainHorovod
from trainyard.specs.train_xgboost import TrainXGBoost
from trainyard.specs.tune_rules import AUTO

ENGINES: dict[str, type[TrainHorovod] | type[TrainXGBoost]] = {
    "horovod": TrainHorovod,
    "xgboost": TrainXGBoost,
}
"""The training jobs whose settings are searched, by the name of their engine."""


@dataclass(frozen=True, kw_only=True)
class Tune(RunDirectory):
    """Search the settings of a training: many trials side by side, each in one Spark task."""

    job = "tune"
    slots_setting = "parallel"
    imports = ("torch", "horovod.torch", "xgboost")

    dataset: str = setting(
        help="Directory that holds the prepared dataset.json.", section="Data", operational=True
    )
    engine: str = setting(
        "horovod",
        choices=tuple(ENGINES),
        help="The training whose settings are searched.",
        section="Search",
    )
    space: dict[str, object] = setting(
        {},
        help='What is searched, as JSON: {"learning_rate": {"low": 0.001, "high": 0.1, "log": true}'
        ', "schedule": {"choices": ["constant", "cosine"]}} names settings of the training; {} '
        "takes the ranges of the engine itself.",
        section="Search",
    )
    fixed: dict[str, object] = setting(
        {},
        help="Settings of the training that all trials share, as JSON; {} for its defaults.",
        section="Search",
    )
    metric: str = setting(
        AUTO,
        help="What trials are compared by, such as validation_accuracy; auto is the validation "
        "split's value of what the training itself chooses its best epoch or round by.",
        section="Search",
    )
    direction: str = setting(
        AUTO,
        choices=(AUTO, "minimize", "maximize"),
        help="Whether less or more of the metric is better; auto goes by the metric.",
        section="Search",
    )
    trials: int = setting(
        20,
        minimum=1,
        maximum=10_000,
        help="Trials of this run at most; fewer where the space holds no more, or by time_budget.",
        section="Budget",
    )
    time_budget: int | None = setting(
        None,
        minimum=1,
        help="Seconds of work, of all attempts of this run, after which no trial begins; those "
        "that run, or ran when an attempt was killed, come to their end.",
        section="Budget",
    )
    parallel: int | None = setting(
        None,
        minimum=1,
        maximum=4096,
        help="Trials side by side; one for each slot that Spark has without it.",
        section="Budget",
        operational=True,
    )
    sampler: str = setting(
        "tpe",
        choices=("tpe", "random"),
        help="How the next trial is chosen: from those before (TPE), or at random.",
        section="Search",
    )
    startup_trials: int = setting(
        10,
        minimum=1,
        maximum=10_000,
        help="Random trials before TPE has its say.",
        section="Search",
    )
    pruner: str = setting(
        "median",
        choices=("median", "halving", "none"),
        help="Which trials are given up early: those worse than the median of the others at the "
        "same step, those that successive halving drops, or none.",
        section="Pruning",
    )
    prune_after_trials: int = setting(
        5,
        minimum=0,
        maximum=10_000,
        help="Trials that must be complete before the median gives one up.",
        section="Pruning",
    )
    prune_after_steps: int | None = setting(
        None,
        minimum=1,
        maximum=100_000,
        help="Epochs or rounds that a trial has before it can be given up; a third of them all "
        "without it, so that slow learners get their chance.",
        section="Pruning",
    )
    seed: int = setting(
        0,
        minimum=0,
        maximum=2**31 - 1,
        help="Seed of the search, and of each trial's training.",
        section="Search",
    )
    study: str | None = setting(
        None,
        help="Directory, an absolute path or a URI, of a study that several runs go on with; this "
        "run's own without it.",
        section="Study",
    )
    experiment: str = setting(
        "trainyard", help="MLflow experiment of the runs.", section="Tracking", operational=True
    )

    @property
    def slots(self) -> int:
        """One for each trial at a time; one at least where Spark says how many."""
        return self.parallel or 1

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The space, read."""
        return space_of(ENGINES[self.engine], self.space, self._fixed())

    def trial(self, run_dir: str, values: dict[str, Any]) -> TrainHorovod | TrainXGBoost:
        """The training of a trial, with one rank.

        Args:
            run_dir: the trial's own directory.
            values: what is tried, by the names of the space.

        Raises:
            SettingError: the values contradict each other.
        """
        given = {**merged(ENGINES[self.engine], self._fixed(), values), "run_dir": run_dir}
        return ENGINES[self.engine].from_mapping(given)

    def chosen(self, values: dict[str, Any]) -> dict[str, Any]:
        """The settings of a training that a trial stands for: what all share, and its own."""
        return merged(ENGINES[self.engine], self._shared(), values)

    def check(self) -> None:
        """Raise `SettingError` for what cannot be searched."""
        contract = ENGINES[self.engine]
        fields = {field.name: field for field in contract.settings()}
        for name in self.fixed:
            own = name in fields and (fields[name].setting.operational or name in NOT_SEARCHED[:2])
            if own or name == "seed":
                raise SettingError(
                    "fixed",
                    self.fixed,
                    f"{name!r} is not for a trial to say",
                    "Leave it out: how and where a trial runs is the search's: one rank, a "
                    "directory of its own, the seed of the search.",
                )
        tune_rules.check_study(self)
        tune_rules.check_metric(self)
        try:
            training = contract.from_mapping(self._fixed())
        except SettingError as error:
            raise SettingError(
                "fixed",
                self.fixed,
                f"setting {error.name!r} of {contract.job} is refused: {error.problem}",
                error.fix,
            ) from error
        measured = training.metrics if isinstance(training, TrainXGBoost) else ()
        if measured and self.metric != AUTO and self.measured not in measured:
            raise SettingError(
                "metric",
                self.metric,
                f"metrics of fixed are {', '.join(measured)}, which lack it",
                f"Add {self.measured!r} to them, or leave them out.",
            )
        if not self.dimensions:
            raise SettingError("space", self.space, "it is empty", "Name what is to be searched.")
        tune_rules.check_comparable(self)

    @property
    def grows(self) -> bool | None:
        """Whether more of the metric is better; None where the dataset decides on the metric."""
        name = self.metric.partition("_at_")[0] if self.engine == "xgboost" else self.metric
        return tune_rules.growing(self.engine).get(name)

    def _shared(self) -> dict[str, Any]:
        """The settings that all trials share, with what the metric needs to be measured."""
        shared = dict(self.fixed)
        if self.engine == "xgboost" and self.metric != AUTO:
            shared.setdefault("metrics", [self.measured])
        return shared

    @property
    def measured(self) -> str:
        """The metric by XGBoost's name of it, of whichever split."""
        return self.metric.removeprefix("validation_").replace("_at_", "@")

    def _fixed(self) -> dict[str, Any]:
        """All that a trial does not try."""
        ranks = "ranks" if self.engine == "horovod" else "num_workers"
        return {
            **self._shared(),
            ranks: 1,
            "seed": self.seed,
            "run_dir": self.run_dir,
            "dataset": self.dataset,
            "model_name": "trial",
        }
