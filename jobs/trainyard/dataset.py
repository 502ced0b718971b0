"""A prepared dataset: split Parquet files and the dataset.json that makes them one.

Each file has these columns, whatever the source's were called:

    key         string
    features    array<float>, all of one width: what a model takes; NaN is a missing number
    label       long, an index into `classes`; for a regression double, the value itself
    weight      double, where there is a weight column
    margin      array<double>, one number for each output, where there is a base margin column
    keep        array<string>, one text for each column of `keep`, in its order, if any
    values      array<double>     what `features` was made from, where preprocessing was fitted:
    categories  array<string>     numbers and categories as the source had them
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

from trainyard import store
from trainyard.errors import JobError
from trainyard.layout import DATASET, join
from trainyard.specs import SPLITS

KEY = "key"
FEATURES = "features"
LABEL = "label"
WEIGHT = "weight"
MARGIN = "margin"
KEEP = "keep"
VALUES = "values"
CATEGORIES = "categories"

CLASSIFICATION = "classification"
REGRESSION = "regression"


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One Parquet file of a split.

    Attributes:
        path: relative to the dataset's directory.
        row_groups: rows of each row group.
        bytes: size of the file.
    """

    path: str
    row_groups: tuple[int, ...]
    bytes: int

    def __post_init__(self) -> None:
        if self.path.startswith("/") or ".." in self.path.split("/"):
            raise ValueError(f"the file {self.path!r} is not below the dataset's directory")

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return sum(self.row_groups)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Preprocessing that was fitted on a training split, and stored with what uses it.

    Attributes:
        numbers: the source's columns of numbers, or the one of arrays or vectors.
        categories: the source's columns of categories.
        values: how many numbers a row has before it.
        width: how many it has after it.
        imputation: how missing numbers are filled in: `none`, `mean`, `median`, or `keep`, by which
            they stay missing.
        scaling: how numbers are scaled: `none`, `standard`, `minmax` or `robust`.
        encoding: what a category becomes: `onehot` or `index`.
        sha256: digest of its stored files.
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    values: int
    width: int
    imputation: str
    scaling: str
    encoding: str = "onehot"
    sha256: str

    @property
    def indexed(self) -> tuple[str, ...]:
        """The columns of categories that became one number each, the last of a row's features."""
        return self.categories if self.encoding == "index" else ()

    @property
    def leaves_missing(self) -> bool:
        """Whether a feature may be missing (NaN)."""
        return self.imputation == "keep" or bool(self.indexed)

    @classmethod
    def from_mapping(cls, described: dict[str, Any] | None) -> Self | None:
        """What `dataclasses.asdict` made of it, or None."""
        if described is None:
            return None
        tuples = {name: tuple(described[name]) for name in ("numbers", "categories")}
        return cls(**{**described, **tuples})


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What dataset.json says.

    Attributes:
        directory: where the dataset lies; not written.
        fingerprint: digest of the source's data and the settings that made the dataset.
        source: what it was made from.
        task: `classification` or `regression`.
        features: the source's feature columns, in order.
        label: the source's label column.
        key: the source's key column, if it has one.
        weight: the source's weight column, if it has one.
        base_margin: the source's column of base margins, if it has one.
        keep: the source's columns that were carried along as texts.
        width: length of each row's features.
        classes: the source's label values; a row's label is an index into them; empty for a
            regression.
        preprocessing: what `features` was made with, if anything.
        splits: the files of train, validation, test and holdout.
    """

    directory: str
    fingerprint: str
    source: str
    task: str = CLASSIFICATION
    features: tuple[str, ...]
    label: str
    key: str | None
    weight: str | None = None
    base_margin: str | None = None
    keep: tuple[str, ...] = ()
    width: int
    classes: tuple[str | int, ...]
    preprocessing: Fitted | None = None
    splits: dict[str, tuple[DataFile, ...]]

    @property
    def margins(self) -> int:
        """How many base margins a row has, where there are any: one, or one for each class."""
        return len(self.classes) if len(self.classes) > 2 else 1

    @property
    def outputs(self) -> int:
        """How many numbers a network gives for a row: a score for each class, or the value."""
        return len(self.classes) if self.task == CLASSIFICATION else 1

    def rows(self, split: str) -> int:
        """Rows of a split."""
        return sum(file.rows for file in self.splits[split])

    def paths(self, split: str) -> list[str]:
        """Full paths of a split's files."""
        return [join(self.directory, file.path) for file in self.splits[split]]

    def write(self) -> None:
        """Write dataset.json; call it once every file is written."""
        described = dataclasses.asdict(self)
        del described["directory"]
        store.write_json(join(self.directory, DATASET), described)

    @classmethod
    def read(cls, directory: str) -> Self:
        """Read dataset.json.

        Raises:
            JobError: it is not there or is not a dataset's.
        """
        uri = join(directory, DATASET)
        missing = JobError(
            f"setting 'dataset' is {directory!r}: there is no {DATASET}.",
            "Give the directory that a prepare job made (its result names it).",
        )
        with store.reading(uri, "a dataset", missing=missing, fix="Run the prepare job again."):
            described: dict[str, Any] = store.read_json(uri)
            # One of before held rows out has no such split.
            splits = dict.fromkeys(SPLITS, ()) | {
                name: tuple(
                    DataFile(**{**file, "row_groups": tuple(file["row_groups"])}) for file in files
                )
                for name, files in described.pop("splits").items()
            }
            for name in ("features", "keep", "classes"):
                described[name] = tuple(described[name])
            described["preprocessing"] = Fitted.from_mapping(described["preprocessing"])
            return cls(directory=directory, splits=splits, **described)

    def check_files(self, *splits: str) -> None:
        """Raise `JobError` when a file of these splits, or of any, is not as dataset.json says.

        Compares each file's size with dataset.json; readers compare row groups and checksums.
        """
        for split in splits or self.splits:
            for file in self.splits[split]:
                uri = join(self.directory, file.path)
                found = store.size(uri)
                if found != file.bytes:
                    has = "is not there" if found is None else f"has {found} bytes"
                    raise JobError(
                        f"the file {uri!r} of the dataset {has}, where {DATASET} says "
                        f"{file.bytes} bytes and {file.rows} rows.",
                        "Run the prepare job again, into a new directory.",
                    )
