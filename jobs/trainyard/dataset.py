"""A prepared dataset: split Parquet files and the dataset.json that makes them one.

Each file has three columns, whatever the source's were called: `key` (string), `features`
(array<float>, all of one width) and `label` (long, an index into `classes`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

from trainyard import store
from trainyard.errors import JobError
from trainyard.layout import DATASET, join

KEY = "key"
FEATURES = "features"
LABEL = "label"


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

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return sum(self.row_groups)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What dataset.json says.

    Attributes:
        directory: where the dataset lies; not written.
        fingerprint: digest of the source's data and the settings that made the dataset.
        source: what it was made from.
        features: the source's feature columns, in order.
        label: the source's label column.
        key: the source's key column, if it has one.
        width: length of each row's features.
        classes: the source's label values; a row's label is an index into them.
        splits: the files of train, validation and test.
    """

    directory: str
    fingerprint: str
    source: str
    features: tuple[str, ...]
    label: str
    key: str | None
    width: int
    classes: tuple[str | int, ...]
    splits: dict[str, tuple[DataFile, ...]]

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
        try:
            described: dict[str, Any] = store.read_json(uri)
            splits = {
                name: tuple(
                    DataFile(**{**file, "row_groups": tuple(file["row_groups"])}) for file in files
                )
                for name, files in described.pop("splits").items()
            }
            described["features"] = tuple(described["features"])
            described["classes"] = tuple(described["classes"])
            return cls(directory=directory, splits=splits, **described)
        except FileNotFoundError as error:
            raise JobError(
                f"setting 'dataset' is {directory!r}: there is no {DATASET}.",
                "Give the directory that a prepare job made (its result names it).",
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise JobError(
                f"{uri!r} does not describe a dataset: {error!r}.", "Run the prepare job again."
            ) from error
