"""The parameters of `sparkdl.xgboost`'s estimators, and those of XGBoost that they pass on."""

from __future__ import annotations

from typing import Any

from trainyard.boosters import BOOSTER_PARAMS
from trainyard.ml.parameter import FLAG, NUMBER, TEXT, Setting, listed, native, whole


def _spark(name: str, doc: str, default: str | None = None) -> Setting:
    """A column's name; its methods are spelled as Spark ML does."""
    accessor = name[:1].upper() + name[1:]
    return Setting(name=name, doc=doc, default=default, convert=TEXT, accessor=accessor)


def _metrics(value: Any) -> Any:
    names = native(value)
    if not all(isinstance(name, str) for name in listed(names)):
        raise TypeError("it takes the names of XGBoost's metrics, such as 'logloss', no function")
    return names


COLUMNS = (
    _spark("featuresCol", "column of vectors or arrays", "features"),
    _spark("labelCol", "column of labels", "label"),
    _spark("weightCol", "column of the rows' weights"),
    _spark("validationIndicatorCol", "column of booleans: whether a row validates each round"),
    _spark("baseMarginCol", "column of margins to boost from"),
    _spark("predictionCol", "column that gets the predicted class or value", "prediction"),
)

CLASSES = (
    _spark("probabilityCol", "column that gets the classes' probabilities", "probability"),
    _spark("rawPredictionCol", "column that gets the classes' margins", "rawPrediction"),
)

_DISK = ("rows are held as one quantised copy, a byte or two a number", "Leave it out.")

TRAINING = (
    Setting(
        name="missing",
        doc="number that stands for a missing one, beside NaN; 0 takes a sparse vector's zeros",
        default=float("nan"),
        convert=NUMBER,
    ),
    Setting(
        name="callbacks", doc="xgboost.callback.TrainingCallback objects, called on every worker"
    ),
    Setting(name="num_workers", doc="Spark tasks, one thread each", default=1, convert=whole()),
    Setting(
        name="use_gpu",
        doc="train on the GPU that Spark gave a worker's task",
        default=False,
        convert=FLAG,
    ),
    Setting(name="n_estimators", doc="most boosting rounds", default=100, convert=whole()),
    Setting(name="max_depth", doc="depth of a tree; 0 is no limit", convert=whole(0)),
    Setting(name="learning_rate", doc="how much each round adds", convert=NUMBER),
    Setting(name="objective", doc="what is made small; by the label without it", convert=TEXT),
    Setting(
        name="eval_metric",
        doc="what each round is measured by; the last decides",
        convert=_metrics,
    ),
    Setting(
        name="early_stopping_rounds",
        doc="stop after so many rounds without a better validation metric",
        convert=whole(),
    ),
    Setting(name="random_state", doc="seed of the sampling", convert=whole(0)),
    Setting(name="importance_type", doc="what importances count", default="weight", convert=TEXT),
    *(
        Setting(name=name, doc=f"XGBoost's {name}; {kind.wanted}", convert=native)
        for name, kind in BOOSTER_PARAMS.items()
    ),
    Setting(
        name="force_repartition",
        doc="spread rows before training",
        default=False,
        refused=("rows always are spread over the workers", "Leave it out."),
    ),
    Setting(name="use_external_storage", doc="hold rows on disk", default=False, refused=_DISK),
    Setting(name="external_storage_precision", doc="digits on disk", default=5, refused=_DISK),
)

_THREAD = ("a worker has one thread", "Set num_workers, such as to sc.defaultParallelism.")
_WEIGHTS = ("weights are a column, of validation rows too", "Set weightCol.")
_MARGINS = ("margins are a column, of validation rows too", "Set baseMarginCol.")
_EVAL = ("a column says which rows validate", "Set validationIndicatorCol.")
_NAMES = ("features are one column, by position", "Leave it out.")
_PRINT = ("a worker logs warnings and errors", "Leave it out.")
_RANKING = ("ranking is not there yet", "Predict the relevance as a number, and sort by it.")

OLD_NAMES: dict[str, tuple[str, str]] = {
    "gpu_id": ("Spark says which GPU a worker has", "Set use_gpu=True."),
    "device": ("the device is one parameter", "Set use_gpu=True for a GPU."),
    "predictor": ("a model predicts on the CPU", "Leave it out."),
    "n_jobs": _THREAD,
    "nthread": _THREAD,
    "base_margin": _MARGINS,
    "base_margin_eval_set": _MARGINS,
    "sample_weight": _WEIGHTS,
    "sample_weight_eval_set": _WEIGHTS,
    "eval_set": _EVAL,
    "eval_group": _RANKING,
    "eval_qid": _RANKING,
    "group": _RANKING,
    "qid": _RANKING,
    "feature_names": _NAMES,
    "feature_types": _NAMES,
    "feature_weights": ("columns are drawn evenly", "Leave it out."),
    "enable_categorical": ("features are numbers", "Encode them, as by OneHotEncoder."),
    "output_margin": ("margins are a column of the result", "Set rawPredictionCol."),
    "validate_features": ("a row's width is always compared with the model's", "Leave it out."),
    "use_label_encoder": ("labels are 0 to k-1", "Leave it out; StringIndexer makes such labels."),
    "validate_parameters": ("they always are", "Leave it out."),
    "num_class": ("the labels say how many classes there are", "Leave it out."),
    "kwargs": ("each parameter is one of its own", "Give them by name."),
    "seed": ("it has another name", "Set random_state."),
    "eta": ("it has another name", "Set learning_rate."),
    "num_boost_round": ("it has another name", "Set n_estimators."),
    "verbosity": _PRINT,
    "verbose": _PRINT,
    "verbose_eval": _PRINT,
    "xgb_model": (
        "trees are not added to an older model's",
        "Give its margins as baseMarginCol: the rawPrediction of a row.",
    ),
    "features_col": ("it has another name", "Set featuresCol."),
    "label_col": ("it has another name", "Set labelCol."),
    "weight_col": ("it has another name", "Set weightCol."),
    "validation_indicator_col": ("it has another name", "Set validationIndicatorCol."),
    "base_margin_col": ("it has another name", "Set baseMarginCol."),
    "enable_sparse_data_optim": (
        "only values that are not missing are held",
        "Set missing=0.0 for sparse vectors whose zeros mean missing.",
    ),
}
"""Parameters of XGBoost, `xgboost.spark` and sparkdl that are none here: why, and what to use."""


def engine_settings(value: Any) -> dict[str, Any]:
    """The settings of the training job that the parameters amount to.

    Args:
        value: gives a parameter's value by its name.
    """
    metrics, missing = value("eval_metric"), value("missing")
    booster = {name: value(name) for name in BOOSTER_PARAMS}
    given = {
        "rounds": value("n_estimators"),
        "max_depth": value("max_depth"),
        "learning_rate": value("learning_rate"),
        "objective": value("objective"),
        "seed": value("random_state"),
        "early_stopping_rounds": value("early_stopping_rounds"),
        "metrics": metrics and tuple(listed(metrics)),
        "missing": None if missing is None or missing != missing else missing,
        "booster_params": {name: v for name, v in booster.items() if v is not None},
    }
    return {
        **{name: v for name, v in given.items() if v is not None},
        "num_workers": value("num_workers"),
        "device": "gpu" if value("use_gpu") else "cpu",
    }
