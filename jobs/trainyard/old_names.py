"""Settings of other distributed XGBoosts that are none here, and what to use instead."""

from __future__ import annotations

NO_RANKING = (
    "ranking is not there yet",
    "Predict the relevance as a class or a number, and sort by it.",
)
"""Why there is no ranking, and what to do."""

_WEIGHT = ("weights are a column of the dataset", "Name it in prepare's 'weight'.")
_MARGIN = ("margins are a column of the dataset", "Name it in prepare's 'base_margin'.")
_THREAD = ("a worker has one thread", "Set num_workers: one for each core.")
_ROUNDS = ("it has another name", "Set rounds.")

OLD_NAMES: dict[str, tuple[str, str]] = {
    "gpu_id": (
        "Spark says which GPU a worker has",
        "Set device to gpu, and Spark's resource.gpu.amount of executors and tasks to 1.",
    ),
    "use_gpu": ("the device is one setting", "Set device to gpu."),
    "output_margin": (
        "predictions are probabilities or values",
        "Leave it out; Booster.predict(output_margin=True) of the stored model.ubj gives margins.",
    ),
    "validate_features": (
        "a dataset's features are always compared with the model's",
        "Leave it out.",
    ),
    "sample_weight": _WEIGHT,
    "weight_col": _WEIGHT,
    "eval_set": (
        "the dataset's validation split judges each round",
        "Set prepare's validation_fraction, or name a boolean column in its 'split_column'.",
    ),
    "validation_indicator_col": (
        "the dataset's validation split judges each round",
        "Name the column in prepare's 'split_column', with split_by='column'.",
    ),
    "sample_weight_eval_set": (
        "validation rows have the dataset's weights too",
        "Name the column in prepare's 'weight'.",
    ),
    "base_margin": _MARGIN,
    "base_margin_col": _MARGIN,
    "base_margin_eval_set": (
        "validation rows have the dataset's base margins too",
        "Name the column in prepare's 'base_margin'.",
    ),
    "group": NO_RANKING,
    "qid_col": NO_RANKING,
    "n_jobs": _THREAD,
    "nthread": _THREAD,
    "n_estimators": _ROUNDS,
    "num_boost_round": _ROUNDS,
    "eval_metric": ("it has another name", "Set metrics."),
    "tree_method": ("it belongs to the booster", "Set it in booster_params; hist is the default."),
    "features_col": (
        "the dataset says which features it has",
        "Name them in prepare's 'features'.",
    ),
    "label_col": ("the dataset says which label it has", "Name it in prepare's 'label'."),
    "arbitrary_params_dict": ("it has another name", "Set booster_params."),
    "enable_sparse_data_optim": (
        "it is always on: only the values that are not missing are held",
        "Set missing to 0 for sparse vectors whose zeros mean missing.",
    ),
}
"""Settings of other distributed XGBoosts, with why they are none here and what to use."""
