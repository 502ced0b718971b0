"""The tutorial of Horovod's Spark estimator in this project's own words: digits and two ranks.

    spark-submit --master 'local[2]' jobs/estimator_tutorial.py --run-dir=/data/runs/tutorial

A DataFrame is split, an estimator with a store trains on one part, its model scores the other, and
Spark ML's evaluator judges. The network and the loss are this driver program's own.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from trainyard.horovod import SparkBackend, Store, TorchEstimator, TorchModel
from trainyard.job import Run, run_job
from trainyard.layout import join
from trainyard.rundir import EventWriter
from trainyard.samples import SAMPLES
from trainyard.session import spark_session
from trainyard.specs import EstimatorTutorial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DigitsNet(nn.Module):
    """Scores the ten digits of 8 x 8 grey images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 4 * 4, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits (rows, 10) of pixels (rows, 1, 8, 8) from 0 to 16."""
        scores: Tensor = self.layers(pixels / 16)
        return scores


class Progress:
    """A callback that reports epochs where Airflow looks for them.

    Args:
        spec: the job's settings.
        claim: number of the driver's claim on the run directory.
    """

    def __init__(self, spec: EstimatorTutorial, claim: int) -> None:
        self._spec = spec
        self._claim = claim

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        """Report an epoch, from rank 0 alone."""
        import horovod.torch as hvd

        if hvd.rank() == 0:
            writer = f"rank0-epoch{epoch}"
            with closing(EventWriter(self._spec.run_dir, claim=self._claim, writer=writer)) as told:
                figures = {split: logs[split]["loss"] for split in ("train", "validation")}
                told.progress("train", epoch + 1, self._spec.epochs, "epoch", **figures)


def digits(spark: SparkSession) -> DataFrame:
    """1,797 digits: `pixels`, a vector of 64 numbers, and `digit`."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    table = spark.createDataFrame(SAMPLES["digits"]().to_pandas())
    return table.select(array_to_vector(F.col("pixels")).alias("pixels"), "digit")


def estimator(spec: EstimatorTutorial, run: Run) -> TorchEstimator:
    """The estimator, as the tutorial makes it."""
    torch.manual_seed(spec.seed)
    model = DigitsNet()
    return TorchEstimator(
        backend=SparkBackend(num_proc=spec.num_proc),
        store=Store.create(spec.store or join(spec.run_dir, "store")),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=spec.learning_rate, momentum=0.5),
        loss=lambda scores, labels: nn.functional.cross_entropy(scores, labels.long()),
        metrics=[[lambda scores, labels: (scores.argmax(1) == labels.long()).float().mean()]],
        callbacks=[Progress(spec, run.claim)],
        input_shapes=[[-1, 1, 8, 8]],
        feature_cols=["pixels"],
        label_cols=["digit"],
        validation=spec.validation,
        batch_size=spec.batch_size,
        epochs=spec.epochs,
        partitions_per_process=1,
        random_seed=spec.seed,
        verbose=0,
    )


def accuracy(model: TorchModel, rows: DataFrame) -> float:
    """The share of rows whose digit has the highest score."""
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.sql.functions import udf
    from pyspark.sql.types import DoubleType

    argmax = udf(lambda scores: float(np.argmax(scores)), returnType=DoubleType())
    scored = model.setOutputCols(["scores"]).transform(rows)
    judged = scored.withColumn("prediction", argmax("scores"))
    evaluator = MulticlassClassificationEvaluator(labelCol="digit", metricName="accuracy")
    return evaluator.evaluate(judged)


def work(spec: EstimatorTutorial, run: Run) -> dict[str, Any]:
    """The job: split, fit, transform, evaluate."""
    with spark_session(spec.job, spec.imports) as spark:
        train, test = digits(spark).randomSplit([0.8, 0.2], seed=spec.seed)
        tutored = estimator(spec, run)
        model = tutored.fit(train)
        measured = accuracy(model, test)
        rows = {"train": train.count(), "test": test.count()}
    history = model.getHistory()
    best = min(history, key=lambda epoch: epoch["validation"]["loss"])
    return {
        "outputs": {"run": tutored.getStore().get_run_path(model.getRunId())},
        "metrics": {
            "accuracy": measured,
            "validation_loss": best["validation"]["loss"],
            "best_epoch": best["epoch"] + 1,
            "epochs": len(history),
        },
        "rows": rows,
    }


if __name__ == "__main__":
    sys.exit(run_job(EstimatorTutorial, work))
