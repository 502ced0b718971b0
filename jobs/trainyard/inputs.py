"""What each model is given for the rows of a dataset: features as its own preprocessing makes them.

A dataset's `features` were made by the preprocessing that was fitted on its own training rows. A
model that was trained on another dataset has another one, of other means and categories; judged by
those features, it would look worse than it is. Its features are made anew of the source's values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import from_arrow_schema

from trainyard.dataset import CATEGORIES, FEATURES, VALUES, Dataset
from trainyard.errors import JobError
from trainyard.models import StoredModel
from trainyard.parts import Unit, part_numbers, read_parts, schema_of
from trainyard.preprocessing import Preprocessing


def inputs(
    spark: SparkSession,
    dataset: Dataset,
    parts: Sequence[Sequence[Unit]],
    models: Mapping[str, StoredModel],
    run_dir: str,
) -> DataFrame:
    """The parts' rows with the columns of their files, and `NAME_features` for some models.

    `input_of` says which column each model is given.

    Args:
        parts: what `cut` made of the dataset; each becomes a partition.
        models: by name.
        run_dir: the run directory, to which preprocessing is copied.

    Raises:
        JobError: the dataset's rows do not hold what a model's preprocessing wants.
    """
    schema = schema_of(dataset)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_parts(batches, parts, schema)

    rows = part_numbers(spark, parts).mapInArrow(read, from_arrow_schema(schema))
    for name, model in models.items():
        if input_of(dataset, name, model) != FEATURES:
            rows = _own_features(rows, dataset, name, model, run_dir)
    return rows


def input_of(dataset: Dataset, name: str, model: StoredModel) -> str:
    """The column of `inputs` that holds a model's features."""
    mine, theirs = model.meta.preprocessing, dataset.preprocessing
    return FEATURES if mine == theirs else f"{name}_{FEATURES}"


def _own_features(
    rows: DataFrame, dataset: Dataset, name: str, model: StoredModel, run_dir: str
) -> DataFrame:
    mine, theirs = model.meta.preprocessing, dataset.preprocessing
    values = theirs.values if theirs else dataset.width
    numbers = (theirs.numbers, theirs.categories) if theirs else (dataset.features, ())
    wanted = mine.values if mine else model.meta.width
    columns = (mine.numbers, mine.categories) if mine else (model.meta.features, ())
    has_missing = theirs is not None and theirs.imputation != "none"
    if (wanted, columns) != (values, numbers) or (
        has_missing and (mine is None or mine.imputation == "none")
    ):
        raise JobError(
            f"the {name} takes {wanted} numbers of {_shown(*columns)}, but the dataset "
            f"{dataset.directory!r} has {values} of {_shown(*numbers)}"
            + (", and some may be missing." if has_missing else "."),
            "Prepare the dataset with the settings with which the model's was prepared.",
        )
    column = input_of(dataset, name, model)
    if mine is None:
        return rows.withColumn(column, F.col(VALUES).cast("array<float>"))
    if theirs is None:
        numbers_only = {
            VALUES: F.col(FEATURES).cast("array<double>"),
            CATEGORIES: F.array().cast("array<string>"),
        }
        rows = rows.withColumns(numbers_only)
    return Preprocessing.load(model.directory, mine, run_dir).apply(rows, column)


def _shown(numbers: Sequence[str], categories: Sequence[str]) -> str:
    return ", ".join([*numbers, *(f"{name} (categories)" for name in categories)])
