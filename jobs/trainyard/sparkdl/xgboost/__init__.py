"""XGBoost's Spark ML estimators with the names of `sparkdl.xgboost`, on this project's engine.

from trainyard.sparkdl.xgboost import XgboostClassifier, XgboostRegressor
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.lazily import lazily

if TYPE_CHECKING:
    from trainyard.sparkdl.xgboost.estimator import XgboostClassifier as XgboostClassifier
    from trainyard.sparkdl.xgboost.estimator import XgboostRegressor as XgboostRegressor
    from trainyard.sparkdl.xgboost.model import XgboostClassifierModel as XgboostClassifierModel
    from trainyard.sparkdl.xgboost.model import XgboostRegressorModel as XgboostRegressorModel

_WHERE = {
    "XgboostClassifier": "estimator",
    "XgboostClassifierModel": "model",
    "XgboostRegressor": "estimator",
    "XgboostRegressorModel": "model",
}

__all__ = [
    "XgboostClassifier",
    "XgboostClassifierModel",
    "XgboostRegressor",
    "XgboostRegressorModel",
]

# `trainyard.migrate` reads the parameters where there is no Spark.
__getattr__ = lazily(__name__, _WHERE)
