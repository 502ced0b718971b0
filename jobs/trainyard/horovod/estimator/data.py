"""The rows that an estimator trains on: a DataFrame's, or those of Parquet files that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trainyard.columns import is_array
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.horovod.estimator.checks import Of
from trainyard.horovod.estimator.rows import Columns, columns_of, dataset_of, found_at
from trainyard.horovod.estimator.store import Store
from trainyard.ml.part import TRAIN, VALIDATION, Taken
from trainyard.ml.staging import stage, type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Given:
    """Rows in files.

    Attributes:
        columns: what a row consists of.
        datasets: the files of `train`, and of `validation` where there are any.
        content: what tells the rows from others, as JSON.
    """

    columns: Columns
    datasets: dict[str, Dataset]
    content: Any


def staged(of: Of, frame: DataFrame, store: Store, directory: str, ranks: int) -> Given:
    """Write a frame's rows into a directory of the store; see `stage` for the errors."""
    wanted = _wanted(of)
    taken = [
        Taken(
            source=name,
            name=name,
            kind=pa.list_(pa.float32()) if is_array(type_of(frame, name)) else pa.float32(),
            minimum=0.0 if name == wanted.weight else None,
        )
        for name in wanted.widths
    ]
    made = stage(
        frame,
        taken,
        directory=directory,
        access=store.access,
        validation=of("validation") or None,
        seed=of("random_seed") or 0,
        parts=ranks * of("partitions_per_process"),
    )
    widths = {name: made.widths.get(name, 0) for name in wanted.widths}
    columns = wanted.with_widths(widths)
    whole = dataset_of(directory, columns, made.files)
    return Given(
        columns=columns,
        datasets={split: whole for split, files in made.files.items() if files},
        content=made.content,
    )


def found(of: Of, store: Store, idx: object) -> Given:
    """The rows that somebody wrote to the store's own paths.

    Raises:
        JobError: there are none.
    """
    wanted = _wanted(of)
    paths = {TRAIN: store.get_train_data_path(idx)}
    if of("validation"):
        paths[VALIDATION] = store.get_val_data_path(idx)
    datasets, columns = {}, wanted
    for split, path in paths.items():
        files = found_at(path, split)
        made = dataset_of(path, wanted, {split: files})
        if not made.rows(split):
            raise JobError(
                f"there are no rows of Parquet at {path!r}, where fit_on_parquet looks for the "
                f"{split} rows.",
                "Write them there, or name another place as Store.create's "
                f"{'train' if split == TRAIN else 'val'}_path.",
            )
        columns = columns_of(made, split, wanted) if split == TRAIN else columns
        datasets[split] = dataset_of(path, columns, {split: files})
    content = {split: [[f.path, f.bytes] for f in d.splits[split]] for split, d in datasets.items()}
    return Given(columns=columns, datasets=datasets, content=content)


def _wanted(of: Of) -> Columns:
    """The columns, their widths not known yet."""
    features, labels, weight = of("feature_cols"), of("label_cols"), of("sample_weight_col")
    names = (*features, *labels, *([weight] if weight else []))
    return Columns(
        features=tuple(features),
        labels=tuple(labels),
        weight=weight,
        widths=dict.fromkeys(names, 0),
    )
