"""The settings of every job: import these to name a job in a DAG, or to see what a job takes."""

from trainyard.specs.common import SOURCE_FORMATS, SPLITS, TASKS, RunDirectory
from trainyard.specs.estimator_tutorial import EstimatorTutorial
from trainyard.specs.evaluate import Evaluate
from trainyard.specs.predict import Predict
from trainyard.specs.prepare import Prepare
from trainyard.specs.train_horovod import TrainHorovod
from trainyard.specs.train_xgboost import TrainXGBoost
from trainyard.specs.tune import Tune

__all__ = [
    "JOBS",
    "SOURCE_FORMATS",
    "SPLITS",
    "TASKS",
    "EstimatorTutorial",
    "Evaluate",
    "Predict",
    "Prepare",
    "RunDirectory",
    "TrainHorovod",
    "TrainXGBoost",
    "Tune",
]

JOBS: tuple[type[RunDirectory], ...] = (
    Prepare,
    TrainHorovod,
    TrainXGBoost,
    Evaluate,
    Predict,
    Tune,
    EstimatorTutorial,
)
"""Every job: those of a pipeline in its order, and the others."""
