"""The settings of `train_xgboost`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainyard.boosters import check_booster_params, check_metrics, check_objective
from trainyard.contract import setting
from trainyard.errors import SettingError
from trainyard.old_names import OLD_NAMES
from trainyard.specs import class_weights
from trainyard.specs.common import RunDirectory, check_model_name

_SAMPLING = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")


@dataclass(frozen=True, kw_only=True)
class TrainXGBoost(RunDirectory):
    """Train boosted trees with XGBoost on Spark."""

    job = "train_xgboost"
    slots_setting = "num_workers"
    imports = ("xgboost", "pyarrow")
    old_names = OLD_NAMES

    dataset: str = setting(
        help="Directory that holds the prepared dataset.json.", section="Data", operational=True
    )
    missing: float | None = setting(
        None,
        help="A number that stands for a missing one, beside NaN, which always does; 0 makes the "
        "zeros of sparse vectors, stored or not, missing.",
        section="Data",
    )
    num_workers: int | None = setting(
        None,
        minimum=1,
        maximum=4096,
        help="Workers, one Spark task with one thread each; all slots that Spark has without it.",
        section="Training",
    )
    rounds: int = setting(
        100, minimum=1, maximum=100_000, help="Most boosting rounds.", section="Training"
    )
    learning_rate: float = setting(
        0.3,
        above=0.0,
        maximum=1.0,
        help="How much each round adds (eta).",
        section="Training",
        search={"low": 0.02, "high": 0.5, "log": True},
    )
    max_depth: int = setting(
        6,
        minimum=0,
        maximum=64,
        help="Depth of a tree; 0 is no limit.",
        section="Training",
        search={"low": 2, "high": 10},
    )
    objective: str = setting(
        "auto",
        help="What is made small; auto goes by the label: binary:logistic, multi:softprob or "
        "reg:squarederror.",
        section="Training",
    )
    booster_params: dict[str, object] = setting(
        {},
        help="The booster's own parameters by XGBoost's names, as JSON.",
        section="Training",
        search={
            "min_child_weight": {"low": 1.0, "high": 20.0, "log": True},
            "colsample_bytree": {"low": 0.4, "high": 1.0},
        },
    )
    class_weights: str = setting(class_weights.NONE, help=class_weights.HELP, section="Training")
    metrics: tuple[str, ...] = setting(
        (),
        help="What each round is measured by; the last decides on early stopping. Without any, "
        "what the objective makes small.",
        section="Stopping",
    )
    early_stopping_rounds: int = setting(
        0,
        minimum=0,
        help="Stop after so many rounds in a row without a better validation metric, and keep the "
        "best round; 0 never stops.",
        section="Stopping",
    )
    min_delta: float = setting(
        0.0,
        minimum=0.0,
        help="By how much more a metric must better to count for early stopping.",
        section="Stopping",
    )
    seed: int = setting(
        0, minimum=0, maximum=2**31 - 1, help="Seed of the sampling.", section="Training"
    )
    checkpoint_every: int = setting(
        10,
        minimum=1,
        help="Rounds between checkpoints; with sampling also the rounds that share a seed.",
        section="Training",
    )
    device: str = setting(
        "auto",
        choices=("auto", "cpu", "gpu"),
        help="Where a worker trains; auto is the GPU that Spark gave its task, if any.",
        section="Workers",
    )
    relaunches: int = setting(
        1,
        minimum=0,
        maximum=100,
        help="How often the job itself starts the workers again, from the last checkpoint, after "
        "one died.",
        section="Workers",
        operational=True,
    )
    start_timeout: int = setting(
        60,
        minimum=1,
        help="Seconds to wait until every worker has a slot.",
        section="Workers",
        operational=True,
    )
    stall_timeout: int = setting(
        120,
        minimum=10,
        help="Seconds after which a worker that does not answer ends the training.",
        section="Workers",
        operational=True,
    )
    explained_rows: int = setting(
        1000,
        minimum=0,
        maximum=100_000,
        help="Rows of a sample whose predictions are explained by SHAP values; 0 explains none.",
        section="Tracking",
        operational=True,
    )
    experiment: str = setting(
        "trainyard", help="MLflow experiment of the run.", section="Tracking", operational=True
    )
    model_name: str = setting(
        help="Name of the registered model.", section="Tracking", operational=True
    )

    @property
    def slots(self) -> int:
        """One for each worker; one at least where Spark says how many."""
        return self.num_workers or 1

    @property
    def samples(self) -> bool:
        """Whether rounds draw rows, columns or trees at random."""
        params = self.booster_params
        return params.get("booster") == "dart" or any(params.get(k, 1) != 1 for k in _SAMPLING)

    def decisive(self) -> dict[str, Any]:
        """As `Contract.decisive`; rounds between checkpoints count where they share a seed."""
        values = super().decisive()
        return values if self.samples else {**values, "checkpoint_every": None}

    def check(self) -> None:
        """Raise `SettingError` for what cannot be trained with."""
        check_model_name(self.model_name)
        check_booster_params(self.booster_params)
        check_objective(self.objective)
        check_metrics(self.metrics)
        class_weights.check_class_weights(self.class_weights)
        if (self.objective == "reg:quantileerror") != ("quantile_alpha" in self.booster_params):
            raise SettingError(
                "objective",
                self.objective,
                "it and quantile_alpha of booster_params go together",
                "Set both, such as reg:quantileerror and 0.9, or neither.",
            )
        if self.early_stopping_rounds and self.booster_params.get("booster") == "dart":
            raise SettingError(
                "early_stopping_rounds",
                self.early_stopping_rounds,
                "dart's later rounds change the weights of earlier trees, so that the best round "
                "cannot be had back",
                "Set it to 0 and choose rounds, or leave booster at gbtree.",
            )
        if self.class_weights != class_weights.NONE and "scale_pos_weight" in self.booster_params:
            raise SettingError(
                "class_weights",
                self.class_weights,
                "scale_pos_weight of booster_params weighs the classes too",
                "Set one of them.",
            )
        if self.max_depth == 0 and not self.booster_params.get("max_leaves"):
            raise SettingError(
                "max_depth",
                0,
                "a tree without a limit to its depth needs one to its leaves",
                "Set max_leaves in booster_params, or a depth.",
            )
