"""XGBoost's estimators for Spark ML pipelines, with the names of `sparkdl.xgboost`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.ml import Estimator

from trainyard.dataset import CLASSIFICATION, REGRESSION
from trainyard.ml import objects
from trainyard.ml.saving import Savable
from trainyard.ml.settings import Tuned, tuned
from trainyard.sparkdl.xgboost.fit import Trees, fit
from trainyard.sparkdl.xgboost.model import (
    XgboostClassifierModel,
    XgboostModel,
    XgboostRegressorModel,
)
from trainyard.sparkdl.xgboost.params import CLASSES, COLUMNS, OLD_NAMES, TRAINING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ALLOW_PICKLE = objects.choice("save callbacks as a pickle; loading one runs code of its writer")


@tuned(*COLUMNS, *TRAINING, _ALLOW_PICKLE)
class XgboostEstimator(Tuned, Savable, Estimator[Any]):
    """What both have in common."""

    old_names = OLD_NAMES
    task: str

    def _model(self, trees: Trees) -> XgboostModel:
        raise NotImplementedError

    def _fit(self, dataset: DataFrame) -> XgboostModel:
        self.check()
        model = self._model(fit(dataset, self.value, self.task))
        shared = {p.name: v for p, v in self._paramMap.items() if p.name in model.table}
        return model._set(**shared)  # type: ignore[no-any-return]

    def saved(self) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """What is written of it."""
        values = {p.name: v for p, v in self._paramMap.items()}
        return objects.split(type(self).__name__, values, ("callbacks",))

    def restore(self, described: dict[str, Any], data: bytes, path: str) -> None:
        """Take back what `saved` gave."""
        self._set(**objects.joined(described, data, path))


@tuned(*CLASSES)
class XgboostClassifier(XgboostEstimator):
    """Trains boosted trees that say which of the classes 0 to k-1 a row has.

    Parameters are sparkdl's and XGBoost's own; `explainParams()` lists them. Those that have no
    meaning here are refused with what to use instead.
    """

    task = CLASSIFICATION

    def _model(self, trees: Trees) -> XgboostModel:
        return XgboostClassifierModel(trees)


class XgboostRegressor(XgboostEstimator):
    """Trains boosted trees that predict a number; see `XgboostClassifier`."""

    task = REGRESSION

    def _model(self, trees: Trees) -> XgboostModel:
        return XgboostRegressorModel(trees)
