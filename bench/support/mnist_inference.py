"""Other ways to score MNIST digits on Spark, to compare the job `predict` with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from trainyard.dataset import FEATURES, LABEL, Dataset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_udf(spark: SparkSession, dataset: Dataset, network: nn.Module, batch: int) -> None:
    """`predict_batch_udf`, as Spark's documentation shows it."""
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import ArrayType, FloatType

    state = network.state_dict()

    def make() -> Any:
        import torch

        from trainyard.networks.mnist import ConvNet

        torch.set_num_threads(1)
        made = ConvNet()
        made.load_state_dict(state)
        made.eval()

        def predict(inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            with torch.inference_mode():
                return made(torch.from_numpy(inputs)).softmax(1).numpy()  # type: ignore[no-any-return]

        return predict

    udf = predict_batch_udf(
        make,
        return_type=ArrayType(FloatType()),
        batch_size=batch,
        input_tensor_shapes=[[1, 28, 28]],
    )
    rows = spark.read.parquet(*dataset.paths("test"))
    _take(rows.select(udf(FEATURES).alias("probabilities")))


def by_horovod(spark: SparkSession, dataset: Dataset, network: nn.Module, count: int) -> None:
    """Horovod's `TorchModel.transform`, on so many rows: it takes them one by one."""
    from horovod.spark.torch import TorchModel
    from pyspark.sql.functions import col
    from pyspark.sql.types import DoubleType

    metadata = {LABEL: {"spark_data_type": DoubleType}}
    model = TorchModel(
        model=network,
        feature_columns=[FEATURES],
        label_columns=[LABEL],
        input_shapes=[[-1, 1, 28, 28]],
        _metadata=metadata,
    )
    rows = spark.read.parquet(*dataset.paths("test")).limit(count).repartition(2)
    _take(model.transform(rows.select(FEATURES, col(LABEL).cast("double").alias(LABEL))))


def _take(rows: Any) -> None:
    """Compute all rows, and write none."""
    rows.write.format("noop").mode("overwrite").save()
