"""Preprocessing by Spark ML's own stages: fitted on the training rows, stored, applied everywhere.

`values` (numbers) and `categories` (texts) of a row become `features`: missing numbers are imputed
or stay missing (NaN), numbers are scaled, each category becomes one number for each value that the
training rows have and one for any other or a missing value, or its value's index, and NaN for any
other or a missing one; all of them are assembled, numbers first. The fitted
pipeline lies beside the dataset and in the model's directory, in Spark ML's own format, which holds
no pickle. Spark must be able to write and read where it lies.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import (
    Imputer,
    MinMaxScaler,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
    StringIndexer,
    StringIndexerModel,
    VectorAssembler,
)
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from trainyard import store
from trainyard.dataset import CATEGORIES, FEATURES, VALUES, Fitted
from trainyard.errors import JobError, SettingError, TransientError
from trainyard.layout import PREPROCESSING, join
from trainyard.rows import Layout
from trainyard.survey import MAX_CLASSES, Survey

if TYPE_CHECKING:
    from trainyard.specs import Prepare

_NUMBERS = "_ml_numbers"
_SCALERS: dict[str, Callable[[], Any]] = {
    "standard": functools.partial(StandardScaler, withMean=True, withStd=True),
    "minmax": MinMaxScaler,
    "robust": functools.partial(RobustScaler, withCentering=True, withScaling=True),
}
_STAGES = {
    f"org.apache.spark.ml.feature.{name}"
    for name in (
        "StringIndexerModel",
        "OneHotEncoderModel",
        "ImputerModel",
        "VectorAssembler",
        "StandardScalerModel",
        "MinMaxScalerModel",
        "RobustScalerModel",
    )
}
_PIPELINE = "org.apache.spark.ml.PipelineModel"


def is_wanted(spec: Prepare) -> bool:
    """Whether a dataset needs any."""
    return bool(spec.categorical) or spec.imputation != "none" or spec.scaling != "none"


def check_columns(spec: Prepare, layout: Layout, found: Survey) -> None:
    """Raise `SettingError` when the columns are not what the settings can be applied to."""
    if spec.imputation == "keep" and spec.scaling != "none":
        raise SettingError(
            "scaling",
            spec.scaling,
            "where missing numbers are kept, there is no mean to scale by",
            "Set it to none, since trees need no scaling, or impute.",
        )
    if spec.imputation in ("mean", "median") and layout.width != len(layout.numbers):
        raise SettingError(
            "imputation",
            spec.imputation,
            f"feature {layout.numbers[0]!r} is an array, which Spark ML's Imputer does not take",
            "Give the numbers as columns, or fill the arrays in before.",
        )
    rows = found.rows - found.faults.rows
    for name, values in zip(layout.numbers, found.ranges, strict=False):
        if spec.imputation in ("mean", "median") and values.missing == rows:
            raise SettingError(
                "features", name, "it is missing in every row", "Leave the column out."
            )
    for name, counted in zip(layout.categories, found.categories, strict=True):
        if len(counted) > MAX_CLASSES:
            raise SettingError(
                "categorical",
                name,
                f"the column has over {MAX_CLASSES} values, each of which would be a number",
                "Leave the column out, or group its values.",
            )


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """A fitted pipeline.

    Attributes:
        fitted: what is known of it.
        model: Spark ML's pipeline.
    """

    fitted: Fitted
    model: PipelineModel

    @classmethod
    def fit(cls, rows: DataFrame, spec: Prepare, layout: Layout, directory: str) -> Self:
        """Fit on training rows, store into a directory, and return what was stored.

        Args:
            rows: with `values` and `categories`; one at least.
            spec: the settings.
            layout: the columns.
            directory: where a directory `preprocessing` is made.

        Raises:
            TransientError: Spark cannot write there.
        """
        columns = _columns(rows, layout.width, len(layout.categories))
        model = Pipeline(stages=list(_stages(spec, layout))).fit(columns)
        target = join(directory, PREPROCESSING)
        try:
            model.write().overwrite().save(_spark_uri(target))
        except (Py4JJavaError, PySparkException) as error:
            raise TransientError(
                f"Spark cannot write the preprocessing to {target!r}: {_line(error)}",
                "Free some space, or use a run directory that Spark can write.",
            ) from error
        one = model.transform(columns.limit(1)).select(_result(model)).head()
        assert one is not None  # noqa: S101 - the training split has rows
        fitted = Fitted(
            numbers=layout.numbers,
            categories=layout.categories,
            values=layout.width,
            width=one[0].size,
            imputation=spec.imputation,
            scaling=spec.scaling,
            encoding=spec.encoding,
            sha256=digest(target),
        )
        return cls(fitted=fitted, model=model)

    @classmethod
    def load(cls, directory: str, fitted: Fitted, run_dir: str) -> Self:
        """Read what was stored with a model.

        Args:
            directory: the model's directory, which may be on this machine alone.
            fitted: what the model knows of it.
            run_dir: the run directory, where a copy goes that every executor can read.

        Raises:
            JobError: it is not there, is not what was stored, or Spark cannot read it.
        """
        source = join(run_dir, f"{PREPROCESSING}-{fitted.sha256[:12]}")
        store.copy(join(directory, PREPROCESSING), source)
        if digest(source) != fitted.sha256:
            raise JobError(
                f"{join(directory, PREPROCESSING)!r} does not have the sha256 that was recorded "
                "with it: it is damaged, or not what was fitted.",
                "Restore the directory, or prepare and train again.",
            )
        _check_stages(source)
        return cls(fitted=fitted, model=PipelineModel.load(_spark_uri(source)))

    def apply(self, rows: DataFrame, name: str = FEATURES) -> DataFrame:
        """Add `NAME`, array<float> made of `values` and `categories`, and `NAME_unseen`.

        The latter says how many of a row's categories are missing, or were in no training row.
        """
        fitted = self.fitted
        made = self.model.transform(_columns(rows, fitted.values, len(fitted.categories)))
        unseen, codes = F.lit(0), []
        for stage in self.model.stages:
            if isinstance(stage, StringIndexerModel):
                # An index of as many as there were values is that of all others.
                for column, labels in zip(stage.getOutputCols(), stage.labelsArray, strict=True):
                    is_unseen = F.col(column) == len(labels)
                    unseen = unseen + is_unseen.cast("int")
                    codes.append(F.when(is_unseen, F.lit(float("nan"))).otherwise(F.col(column)))
        features = vector_to_array(F.col(_result(self.model)), "float32")
        if fitted.indexed:
            numbers = F.slice(features, 1, fitted.width - len(codes))
            features = F.concat(numbers, F.array(*codes).cast("array<float>"))
        return made.select(*rows.columns, features.alias(name), unseen.alias(f"{name}_unseen"))


def digest(directory: str) -> str:
    """A digest of all files of a stored pipeline, without Spark's own checksums and marks."""
    fs, root = store.filesystem(directory)
    found = hashlib.sha256()
    for path in sorted(fs.find(root)):
        name = path.removeprefix(root)
        if not name.rpartition("/")[2].startswith((".", "_")):
            found.update(f"{name}\n{hashlib.sha256(fs.cat_file(path)).hexdigest()}\n".encode())
    return found.hexdigest()


def _columns(rows: DataFrame, values: int, categories: int) -> DataFrame:
    """Rows with a column for each number and category, as the pipeline's first stages take them."""
    numbers = {name: F.col(VALUES)[i] for i, name in enumerate(_names("number", values))}
    texts = {name: F.col(CATEGORIES)[i] for i, name in enumerate(_names("category", categories))}
    whole = {_NUMBERS: array_to_vector(F.col(VALUES))} if values else {}
    return rows.withColumns({**numbers, **texts, **whole})


def _stages(spec: Prepare, layout: Layout) -> Iterator[Any]:
    numbers = [_NUMBERS] if layout.width else []
    if spec.imputation in ("mean", "median"):
        given, imputed = (_names(name, layout.width) for name in ("number", "imputed"))
        yield Imputer(inputCols=given, outputCols=imputed, strategy=spec.imputation)
        numbers = ["_ml_whole"]
        yield VectorAssembler(inputCols=imputed, outputCol=numbers[0])
    if numbers and spec.scaling != "none":
        scaler = _SCALERS[spec.scaling]()
        yield scaler.setInputCol(numbers[0]).setOutputCol("_ml_scaled")
        numbers = ["_ml_scaled"]
    if layout.categories:
        count = len(layout.categories)
        texts, indexes, hot = (_names(name, count) for name in ("category", "index", "hot"))
        yield StringIndexer(inputCols=texts, outputCols=indexes, handleInvalid="keep")
        if spec.encoding == "index":
            hot = indexes
        else:
            yield OneHotEncoder(inputCols=indexes, outputCols=hot, dropLast=False)
        numbers = [*numbers, *hot]
    if layout.categories or numbers == [_NUMBERS]:
        yield VectorAssembler(inputCols=numbers, outputCol="_ml_features")


def _names(name: str, count: int) -> list[str]:
    return [f"_ml_{name}{i}" for i in range(count)]


def _result(model: PipelineModel) -> str:
    return str(model.stages[-1].getOutputCol())  # type: ignore[attr-defined] # every last stage has


def _spark_uri(uri: str) -> str:
    # Without a scheme Spark would take its default filesystem, which may be another.
    return f"file:{store.local_path(uri).absolute()}" if store.is_local(uri) else uri


def _check_stages(directory: str) -> None:
    """Refuse a stored pipeline that names a class which this module does not fit."""
    fs, root = store.filesystem(directory)
    for path in fs.find(root):
        if "/metadata/part-" not in path:
            continue
        described = json.loads(fs.cat_file(path))
        is_root = path.removeprefix(root).startswith("/metadata/")
        known = {_PIPELINE} if is_root else _STAGES
        if described["class"] not in known or "language" in described["paramMap"]:
            raise JobError(
                f"the stored preprocessing {directory!r} names the class {described['class']!r}.",
                "Use a model whose preprocessing this project's prepare job fitted.",
            )


def _line(error: Exception) -> str:
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause or error).strip().splitlines()[0]
