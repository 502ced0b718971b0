"""The same training by Horovod's own TorchEstimator: prints the seconds that `fit` took.

    .venv/estimator/bin/python bench/support/estimator_fit.py DATASET SETTINGS

Runs in an environment of its own; see bench/requirements-estimator.txt.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own idiom
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import LocalStore
from horovod.spark.torch import TorchEstimator
from pyspark.sql import SparkSession

from trainyard.networks.mnist import ConvNet


def main() -> None:
    """Read the training rows, fit, print."""
    directory, settings = sys.argv[1], json.loads(sys.argv[2])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    rows = session.read.parquet(f"{directory}/train").select("features", "label")
    network = ConvNet()
    with tempfile.TemporaryDirectory() as store:
        estimator = TorchEstimator(
            backend=SparkBackend(num_proc=settings["ranks"], stdout=sys.stderr, stderr=sys.stderr),
            store=LocalStore(store),
            model=network,
            optimizer=torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9),
            loss=lambda scores, labels: F.cross_entropy(scores, labels.long()),
            feature_cols=["features"],
            label_cols=["label"],
            input_shapes=[[-1, 1, 28, 28]],
            batch_size=settings["batch_size"],
            epochs=settings["epochs"],
            random_seed=0,
            verbose=0,
        )
        began = time.monotonic()
        model = estimator.fit(rows)
        seconds = time.monotonic() - began
    assert set(model.getModel().state_dict()) == set(network.state_dict())
    print(json.dumps({"stage": seconds}), flush=True)


if __name__ == "__main__":
    main()
