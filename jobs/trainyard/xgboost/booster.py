"""Boosted trees as XGBoost's own UBJ and back, and what becomes of them after training."""

from __future__ import annotations

import numpy as np
import xgboost as xgb

from trainyard.errors import JobError


def from_bytes(data: bytes) -> xgb.Booster:
    """Trees of a UBJ file; they predict on one thread.

    Raises:
        JobError: it is no such file.
    """
    booster = xgb.Booster()
    try:
        if not data:
            raise ValueError("the file is empty")  # which XGBoost does not survive
        booster.load_model(bytearray(data))
    except (xgb.core.XGBoostError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise JobError(
            f"the stored trees cannot be read by XGBoost {xgb.__version__}: {first}",
            "Use the version with which they were trained, or train again.",
        ) from error
    booster.set_param({"nthread": 1})
    return booster


def to_bytes(booster: xgb.Booster) -> bytes:
    """Trees as a UBJ file, without what a checkpoint adds."""
    plain = booster.copy()
    plain.set_attr(**dict.fromkeys(plain.attributes()))
    return bytes(plain.save_raw("ubj"))


def check_fit(booster: xgb.Booster, name: str, *, width: int, outputs: int) -> None:
    """Raise `JobError` where trees do not take a row's features, or give other numbers."""
    takes = booster.num_features()
    if takes != width:
        raise JobError(
            f"the model {name!r} takes {takes} features, but its meta.json says {width}.",
            "Restore the model directory, or train again.",
        )
    margins = booster.inplace_predict(np.zeros((2, width), np.float32), predict_type="margin")
    found = 1 if margins.ndim == 1 else margins.shape[1]
    wanted = outputs if outputs > 2 else 1
    if found != wanted:
        raise JobError(
            f"the model {name!r} gives {found} numbers for a row, but its meta.json says {wanted}.",
            "Restore the model directory, or train again.",
        )
