"""Horovod's TorchEstimator for Spark ML pipelines, on this project's launcher, loader and loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.ml import Estimator

from trainyard.horovod.estimator.fit import Fit, Fitted
from trainyard.horovod.estimator.model import TorchModel
from trainyard.horovod.estimator.params import ALLOW_PICKLE, ESTIMATOR, OBJECTS
from trainyard.ml import objects
from trainyard.ml.saving import Savable
from trainyard.ml.settings import Tuned, tuned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.ml.param import Param
    from pyspark.sql import DataFrame


@tuned(*ESTIMATOR, ALLOW_PICKLE)
class TorchEstimator(Tuned, Savable, Estimator[TorchModel]):
    """Trains a PyTorch model on a DataFrame, with Horovod's ranks as Spark tasks.

    Every parameter of `horovod.spark.torch.TorchEstimator` is one of the constructor, with a getter
    and a setter; `explainParams()` says what each means. One whose value has no meaning here is
    refused with what replaced it. Model and functions may be of the driver program.

    The loss gets outputs, and labels as float32 in the outputs' shape where they have as many
    numbers. The optimizer's learning rate is multiplied by the ranks. The model has the weights of
    the epoch with the least validation loss, or training loss where nothing validates.
    """

    def getOptimizer(self) -> Any:  # noqa: N802 - Spark ML's own name
        """The optimizer, of the model's parameters."""
        return objects.optimizer_of(self.value("model"), self.value("optimizer"))

    def fit_on_parquet(
        self, params: Mapping[Param[Any], Any] | None = None, dataset_idx: object = None
    ) -> TorchModel:
        """Train on Parquet files at the store's `get_train_data_path`, as they are.

        Args:
            params: parameters that replace the estimator's.
            dataset_idx: what ends the paths, where there are several datasets.
        """
        estimator = self.copy(dict(params)) if params else self
        return estimator._made(Fit(estimator).on_parquet(dataset_idx))

    def _fit(self, dataset: DataFrame) -> TorchModel:
        return self._made(Fit(self).on(dataset))

    def _made(self, fitted: Fitted) -> TorchModel:
        return TorchModel(
            history=fitted.history,
            model=fitted.model,
            optimizer=fitted.optimizer,
            run_id=fitted.run_id,
            feature_columns=self.value("feature_cols"),
            label_columns=self.value("label_cols"),
            input_shapes=self.value("input_shapes"),
            loss=self.value("loss"),
            loss_constructors=self.value("loss_constructors"),
            allow_pickle=self.value("allow_pickle"),
        )

    def saved(self) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """What is written of it; neither store nor backend is, which are a session's."""
        values = {p.name: v for p, v in self._paramMap.items() if self.table[p.name].is_saved}
        return objects.split(type(self).__name__, values, OBJECTS)

    def restore(self, described: dict[str, Any], data: bytes, path: str) -> None:
        """Take back what `saved` gave."""
        self._set(**objects.joined(described, data, path))
