"""What XGBoost's estimators make: transformers that add predictions, and can be saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import xgboost as xgb
from pyspark.ml import Model

from trainyard.columns import is_array
from trainyard.ml import objects
from trainyard.ml.parameter import Setting
from trainyard.ml.predicting import Output, add_predictions
from trainyard.ml.saving import Savable
from trainyard.ml.scorer import Input, Predict
from trainyard.ml.settings import Tuned, tuned
from trainyard.sparkdl.xgboost import scorer
from trainyard.sparkdl.xgboost.fit import Trees
from trainyard.sparkdl.xgboost.params import CLASSES, COLUMNS, TRAINING
from trainyard.xgboost.booster import from_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHARED: tuple[Setting, ...] = (
    *COLUMNS,
    *(setting for setting in TRAINING if setting.name in ("missing", "importance_type")),
)


@tuned(*_SHARED)
class XgboostModel(Tuned, Savable, Model):
    """What both have in common.

    Args:
        trees: what came of the training.
    """

    def __init__(self, trees: Trees | None = None, **values: Any) -> None:
        super().__init__(**values)
        self._trees = trees

    @property
    def trees(self) -> Trees:
        """What came of the training."""
        if self._trees is None:
            raise ValueError("this model holds no trees: it was neither trained nor loaded")
        return self._trees

    @property
    def history(self) -> list[dict[str, float]]:
        """Metrics of each round: of the training rows by name, of the others `validation_NAME`."""
        return list(self.trees.history)

    def get_booster(self) -> xgb.Booster:
        """The trees up to the best round, as XGBoost's own object."""
        return from_bytes(self.trees.booster)

    def get_feature_importances(self, importance_type: str | None = None) -> dict[str, Any]:
        """How much each feature that is used matters: by `weight`, `gain`, `cover`, `total_*`."""
        kind = importance_type or self.value("importance_type")
        return dict(self.get_booster().get_score(importance_type=kind))

    def _transform(self, dataset: DataFrame) -> DataFrame:
        inputs = [Input(name=self.value("featuresCol"), width=self.trees.width)]
        if margin := self.value("baseMarginCol"):
            of_classes = margin in dataset.columns and is_array(dataset.schema[margin].dataType)
            inputs.append(Input(name=margin, width=self.trees.classes if of_classes else 1))
        outputs, predict = self._outputs()
        return add_predictions(
            dataset, inputs, outputs, model=self.trees.booster, load=from_bytes, predict=predict
        )

    def _outputs(self) -> tuple[Sequence[Output], Predict]:
        raise NotImplementedError

    def saved(self) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """What is written of it: XGBoost's own file, and no pickle."""
        trees = self.trees
        described = {
            "classes": trees.classes,
            "width": trees.width,
            "history": trees.history,
            "best": trees.best,
            "sha256": objects.digest(trees.booster),
        }
        return {p.name: v for p, v in self._paramMap.items()}, described, trees.booster

    def restore(self, described: dict[str, Any], data: bytes, path: str) -> None:
        """Take back what `saved` gave."""
        given = dict(described)
        objects.check_unchanged(data, given.pop("sha256"), path)
        self._trees = Trees(booster=data, **given)


@tuned(*CLASSES)
class XgboostClassifierModel(XgboostModel):
    """Adds the predicted class, the classes' probabilities and their margins."""

    def _outputs(self) -> tuple[Sequence[Output], Predict]:
        classes = self.trees.classes
        names = [
            self.value(name) for name in ("predictionCol", "probabilityCol", "rawPredictionCol")
        ]
        widths = (None, classes, classes)
        outputs = [Output(name=n, width=w) for n, w in zip(names, widths, strict=True)]
        return outputs, scorer.classifier(classes, self.value("missing"))


class XgboostRegressorModel(XgboostModel):
    """Adds the predicted number."""

    def _outputs(self) -> tuple[Sequence[Output], Predict]:
        output = Output(name=self.value("predictionCol"), width=None)
        return [output], scorer.regressor(self.value("missing"))
