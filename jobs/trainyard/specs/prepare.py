"""The settings of `prepare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainyard.contract import setting
from trainyard.errors import SettingError, nearest
from trainyard.specs.common import SOURCE_FORMATS, SPLITS, TASKS, RunDirectory
from trainyard.specs.prepare_rules import check_bounds, check_source


@dataclass(frozen=True, kw_only=True)
class Prepare(RunDirectory):
    """Turn a source into a dataset: validated, split Parquet with a dataset.json."""

    job = "prepare"

    source: str | None = setting(
        None,
        help="Path or URI of the data, table:DATABASE.NAME for a Spark table, or sample:NAME for a "
        "dataset that a package carries.",
        section="Source",
    )
    tables: dict[str, Any] = setting(
        {},
        help="In place of one source, several by name, which 'query' joins.",
        section="Source",
    )
    query: str | None = setting(
        None,
        help="What makes the rows of the tables: a SELECT of Spark SQL, the path of a .sql file, "
        "or a packaged query's name.",
        section="Source",
        multiline=True,
    )
    format: str = setting(
        "auto", choices=SOURCE_FORMATS, help="How the source is read.", section="Source"
    )
    schema: str | None = setting(
        None,
        help="What the columns must be: a packaged schema's name, the path of a .json file, or its "
        "text; without one any number is good.",
        section="Source",
    )
    bad_rows: float = setting(
        0.0,
        minimum=0.0,
        below=1.0,
        help="Share of the rows that may be bad and go to quarantine; more is an error.",
        section="Source",
    )
    findings: str = setting(
        "note",
        choices=("note", "refuse"),
        help="What a suspicious feature column is: a note in the log, or an error.",
        section="Source",
    )
    task: str = setting(
        "classification",
        choices=TASKS,
        help="Whether the label is a class or a number to predict.",
        section="Columns",
    )
    features: tuple[str, ...] = setting(
        help="Feature columns: numbers and categories, or one column of arrays or vectors.",
        section="Columns",
    )
    categorical: tuple[str, ...] = setting(
        (),
        help="Those of the features that are categories; 'encoding' makes numbers of them.",
        section="Columns",
    )
    label: str = setting(help="Label column.", section="Columns")
    key: str | None = setting(
        None,
        help="Column that identifies a row; without one a row is identified by its content.",
        section="Columns",
    )
    weight: str | None = setting(
        None, help="Column that says how much a row counts in training.", section="Columns"
    )
    base_margin: str | None = setting(
        None,
        help="Column that says what boosting starts from in a row: a number in the objective's own "
        "scale, or for more than two classes an array of one for each; train_xgboost takes it.",
        section="Columns",
    )
    keep: tuple[str, ...] = setting(
        (), help="Columns to carry along, to judge a model by their values.", section="Columns"
    )
    imputation: str = setting(
        "none",
        choices=("none", "mean", "median", "keep"),
        help="What stands for a missing number, as fitted on the training rows; none refuses it, "
        "keep leaves it missing (NaN), which train_xgboost takes.",
        section="Preprocessing",
    )
    encoding: str = setting(
        "onehot",
        choices=("onehot", "index"),
        help="What a category becomes: onehot is a number for each value; index is one number, the "
        "value's index, which train_xgboost takes as a category.",
        section="Preprocessing",
    )
    scaling: str = setting(
        "none",
        choices=("none", "standard", "minmax", "robust"),
        help="How numbers are scaled, as fitted on the training rows.",
        section="Preprocessing",
    )
    split_by: str = setting(
        "hash",
        choices=("hash", "time", "column"),
        help="What decides on a row's split: a hash of its key, its time, or a column that names "
        "the split, or says by true that a row validates.",
        section="Split",
    )
    split_column: str | None = setting(
        None, help="The column of times or of names that splits the rows.", section="Split"
    )
    stratify: bool = setting(
        False, help="Split each class by itself, so that all get their share.", section="Split"
    )
    validation_fraction: float = setting(
        0.1,
        minimum=0.0,
        below=1.0,
        help="Share of the rows that judges each epoch.",
        section="Split",
    )
    test_fraction: float = setting(
        0.2, above=0.0, below=1.0, help="Share of the rows that judges the model.", section="Split"
    )
    validation_from: str | None = setting(
        None,
        help="In place of a share: the date, time or number from which on rows judge each round.",
        section="Split",
    )
    test_from: str | None = setting(
        None, help="Likewise, from which on rows judge the model.", section="Split"
    )
    holdout_from: str | None = setting(
        None,
        help="From which on rows are held out: neither trained on nor judged by.",
        section="Split",
    )
    split_seed: int = setting(
        0, minimum=0, help="Seed of the split by hash of the row key.", section="Split"
    )
    row_group_rows: int = setting(
        2048, minimum=1, help="Rows that a reader holds in memory at a time.", section="Files"
    )
    reuse: bool = setting(
        True,
        help="Take a dataset that was made before from the same rows and settings, if it is whole.",
        section="Files",
    )
    datasets: str | None = setting(
        None,
        help="Directory of the index of datasets to reuse; without one each run makes its own.",
        section="Files",
    )

    def check(self) -> None:
        """Raise `SettingError` when settings of the source, columns or split contradict."""
        check_source(self)
        self._check_columns()
        self._check_split()
        check_bounds(self)

    @property
    def origin(self) -> str:
        """Where the rows come from, in words."""
        if self.source is not None:
            return self.source
        lines = (self.query or "").strip().splitlines()
        return f"{lines[0]} ..." if len(lines) > 1 else lines[0]

    @property
    def bounds(self) -> dict[str, str]:
        """Where splits by time begin, for those of which it is set."""
        starts = (self.validation_from, self.test_from, self.holdout_from)
        told = zip(SPLITS[1:], starts, strict=True)
        return {name: start for name, start in told if start is not None}

    def _check_columns(self) -> None:
        columns = [
            *self.features,
            self.label,
            *filter(None, (self.key, self.weight, self.base_margin)),
        ]
        if not self.features:
            raise SettingError(
                "features", [], "it names no column", "Name at least one feature column."
            )
        for column in columns:
            if columns.count(column) > 1:
                raise SettingError(
                    "features",
                    list(self.features),
                    f"column {column!r} has two roles",
                    "Name it once.",
                )
        for column in self.categorical:
            if column not in self.features:
                raise SettingError(
                    "categorical",
                    list(self.categorical),
                    f"column {column!r} is no feature",
                    nearest(column, self.features),
                )
        for name, named in (("categorical", self.categorical), ("keep", self.keep)):
            if len(set(named)) < len(named):
                raise SettingError(name, list(named), "a column repeats", "Name it once.")

    def _check_split(self) -> None:
        if self.validation_fraction + self.test_fraction >= 1:
            raise SettingError(
                "validation_fraction",
                self.validation_fraction,
                f"with test_fraction {self.test_fraction} it leaves no rows to train on",
                "Make the two add up to less than 1.",
            )
        if (self.split_column is None) != (self.split_by == "hash"):
            needs = "needs a column" if self.split_column is None else "uses none"
            raise SettingError(
                "split_column",
                self.split_column,
                f"a split by {self.split_by} {needs}",
                "Name the column, or split by hash."
                if self.split_column is None
                else "Leave it out, or set split_by to time or column.",
            )
        if self.split_column == self.label:
            raise SettingError(
                "split_column", self.label, "it is the label", "Split by another column."
            )
        if self.stratify and (self.split_by != "hash" or self.task == "regression"):
            other = "a regression" if self.task == "regression" else f"a split by {self.split_by}"
            raise SettingError(
                "stratify",
                self.stratify,
                f"{other} has no classes to split one by one",
                "Leave it out, or split a classification by hash.",
            )
