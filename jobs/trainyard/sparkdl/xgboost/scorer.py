"""How a worker's process applies boosted trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from trainyard.ml.scorer import Floats, Predict


def classifier(classes: int, missing: float | None) -> Predict:
    """What gives the predicted class, the classes' probabilities and their margins."""

    def predict(booster: xgb.Booster, inputs: list[Floats]) -> list[Any]:
        margins = _predicted(booster, inputs, "margin", missing).astype(np.float64)
        raw = np.stack([-margins, margins], axis=1) if classes == 2 else margins
        # The margin of two classes is the logarithm of the second one's odds.
        logs = np.stack([0 * margins, margins], axis=1) if classes == 2 else margins
        shares = np.exp(logs - logs.max(axis=1, keepdims=True, initial=-np.inf))
        probabilities = shares / shares.sum(axis=1, keepdims=True)
        return [probabilities.argmax(axis=1), probabilities, raw]

    return predict


def regressor(missing: float | None) -> Predict:
    """What gives the predicted number."""

    def predict(booster: xgb.Booster, inputs: list[Floats]) -> list[Any]:
        return [_predicted(booster, inputs, "value", missing)]

    return predict


def _predicted(booster: xgb.Booster, inputs: list[Floats], kind: str, missing: float | None) -> Any:
    features, *margins = inputs
    if not len(features):
        outputs = booster.inplace_predict(
            np.zeros((1, features.shape[1]), np.float32), predict_type=kind
        )
        return outputs[:0]
    return booster.inplace_predict(
        features,
        predict_type=kind,
        missing=np.nan if missing is None else missing,
        base_margin=margins[0] if margins else None,
    )
