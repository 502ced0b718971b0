"""XGBoost's Spark ML estimators with the names of `sparkdl.xgboost`, on this project's engine.

from trainyard.sparkdl.xgboost import XgboostClassifier, XgboostRegressor
"""

from trainyard.sparkdl.xgboost.estimator import XgboostClassifier, XgboostRegressor
from trainyard.sparkdl.xgboost.model import XgboostClassifierModel, XgboostRegressorModel

__all__ = [
    "XgboostClassifier",
    "XgboostClassifierModel",
    "XgboostRegressor",
    "XgboostRegressorModel",
]
