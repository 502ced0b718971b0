"""From a DataFrame and the parameters to trees: write the rows, launch the workers, clear up."""

from __future__ import annotations

import functools
import os
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xgboost as xgb

from trainyard import store
from trainyard.barrier.engine import LaunchSettings
from trainyard.barrier.launch import BarrierLauncher, run_again
from trainyard.barrier.slots import check_possible
from trainyard.dataset import CLASSIFICATION, FEATURES, LABEL, MARGIN, REGRESSION, WEIGHT, Dataset
from trainyard.errors import JobError, SettingError
from trainyard.executors import is_local
from trainyard.layout import join
from trainyard.ml.parameter import listed
from trainyard.ml.part import Taken
from trainyard.ml.staging import Staged, stage
from trainyard.session import ship
from trainyard.sparkdl.xgboost.params import engine_settings
from trainyard.specs import TrainXGBoost
from trainyard.xgboost.engine import XGBoostEngine
from trainyard.xgboost.history import TrainResult
from trainyard.xgboost.params import check
from trainyard.xgboost.train import train

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

PLACE = "spark.trainyard.staging"
"""Spark's setting of where rows lie while workers train: a path or URI that all of them reach."""

_CLAIM = 1  # nobody else knows the directory


@dataclass(frozen=True, kw_only=True)
class Trees:
    """What came of a training.

    Attributes:
        booster: the trees up to the best round, as UBJ.
        classes: how many there are; 0 for a regression.
        width: numbers that a row has.
        history: metrics of each round.
        best: number of the best round.
    """

    booster: bytes
    classes: int
    width: int
    history: list[dict[str, float]]
    best: int


def fit(frame: DataFrame, value: Callable[[str], Any], task: str) -> Trees:
    """Train on a frame's rows.

    Args:
        frame: the rows.
        value: gives a parameter's value by its name.
        task: `classification` or `regression`.

    Raises:
        JobError: the parameters or the rows cannot be trained with, or a worker failed.
    """
    context = frame.sparkSession.sparkContext
    place = _place(context)
    spec = TrainXGBoost.from_mapping(
        {
            "run_dir": join(place, "run"),
            "dataset": join(place, "data"),
            "model_name": "sparkdl",
            **engine_settings(value),
        }
    )
    if spec.early_stopping_rounds and not value("validationIndicatorCol"):
        raise SettingError(
            "early_stopping_rounds",
            spec.early_stopping_rounds,
            "there are no rows to stop by",
            "Set validationIndicatorCol, or leave it out.",
        )
    callbacks = _callbacks(value("callbacks"))
    check_possible(context, spec.num_workers or 1, XGBoostEngine.ranks_setting)
    ship(context)
    try:
        dataset = _dataset(frame, value, task, spec)
        check(spec, dataset)
        trained = _launched(context, spec, dataset, callbacks)
    finally:
        store.remove(place)
    assert trained.booster is not None  # noqa: S101 - rank 0 returns them
    return Trees(
        booster=trained.booster,
        classes=len(dataset.classes),
        width=dataset.width,
        history=[done.figures for done in trained.history],
        best=trained.best.number,
    )


def _callbacks(given: Any) -> list[Any]:
    callbacks = listed(given or ())
    for callback in callbacks:
        if not isinstance(callback, xgb.callback.TrainingCallback):
            raise SettingError(
                "callbacks",
                callback,
                "it is no xgboost.callback.TrainingCallback",
                "Give objects whose class derives from that.",
            )
    return callbacks


def _place(context: SparkContext) -> str:
    """A directory of this fit alone."""
    root = context.getConf().get(PLACE) or os.environ.get("TRAINYARD_STAGING")
    if not root:
        if not is_local(context):
            raise SettingError(
                PLACE,
                None,
                f"workers of {context.master} read the rows from files, and have no disk of the "
                "driver's",
                "Set it to a path or URI that driver and executors reach.",
            )
        root = tempfile.gettempdir()
    return join(root, f"trainyard-fit-{uuid.uuid4().hex}")


def _dataset(
    frame: DataFrame, value: Callable[[str], Any], task: str, spec: TrainXGBoost
) -> Dataset:
    """The rows as a prepared dataset's files."""
    weight, margin = value("weightCol"), value("baseMarginCol")
    taken = [
        Taken(
            source=value("featuresCol"),
            name=FEATURES,
            kind=pa.list_(pa.float32()),
            may_miss=True,
        ),
        Taken(
            source=value("labelCol"),
            name=LABEL,
            kind=pa.int64() if task == CLASSIFICATION else pa.float64(),
            counted=task == CLASSIFICATION,
        ),
    ]
    if weight:
        taken.append(Taken(source=weight, name=WEIGHT, kind=pa.float64(), minimum=0.0))
    if margin:
        taken.append(Taken(source=margin, name=MARGIN, kind=pa.list_(pa.float64())))
    staged = stage(
        frame,
        taken,
        directory=spec.dataset,
        access=None,
        validation=value("validationIndicatorCol"),
        parts=max(frame.sparkSession.sparkContext.defaultParallelism, spec.num_workers or 1),
    )
    classes = _classes(staged, value("labelCol")) if task == CLASSIFICATION else ()
    made = Dataset(
        directory=spec.dataset,
        fingerprint=staged.content,
        source="DataFrame",
        task=task if task == CLASSIFICATION else REGRESSION,
        features=(value("featuresCol"),),
        label=value("labelCol"),
        key=None,
        weight=weight,
        base_margin=margin,
        width=staged.widths[FEATURES],
        classes=classes,
        splits={**staged.files, "test": (), "holdout": ()},
    )
    if margin and staged.widths[MARGIN] != made.margins:
        raise SettingError(
            "baseMarginCol",
            margin,
            f"a row has {staged.widths[MARGIN]} margins, where the labels want {made.margins}",
            "Give a number, or for more than two classes a vector of one for each.",
        )
    return made


def _classes(staged: Staged, label: str) -> tuple[int, ...]:
    """The labels, which must be 0 to k-1; one that no row has is a class all the same."""
    found = sorted(staged.values[LABEL])
    most = 1000
    if found[0] < 0 or found[-1] >= most or len(found) < found[-1] / 2:
        raise JobError(
            f"column {label!r} has the labels {', '.join(f'{x:g}' for x in found[:10])}"
            f"{', ...' if len(found) > 10 else ''}, and not 0 to k-1.",
            "Make them so with StringIndexer; for numbers to predict use XgboostRegressor.",
        )
    return tuple(range(max(2, int(found[-1]) + 1)))


def _launched(
    context: SparkContext, spec: TrainXGBoost, dataset: Dataset, callbacks: Any
) -> TrainResult:
    settings = LaunchSettings.of(spec, _CLAIM)
    engine = XGBoostEngine(start_timeout=spec.start_timeout, stall_timeout=spec.stall_timeout)
    launcher = BarrierLauncher(context, settings, engine)

    def fn(launch: int) -> Callable[[], TrainResult]:
        return functools.partial(
            train, spec, dataset, claim=_CLAIM, launch=launch, callbacks=callbacks
        )

    return run_again(launcher, fn, spec.num_workers or 1, spec.relaunches, print)[0]
