"""One fit and one transform by an estimator: prints the seconds of each, and how good the model is.

    python bench/support/estimator_run.py trainyard|horovod DATASET

`horovod` runs in an environment of its own; see bench/requirements-estimator.txt.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own idiom
from pyspark.sql import SparkSession

from trainyard.networks.mnist import ConvNet

RANKS = 2


def estimator(kind: str, store: str, network: torch.nn.Module) -> Any:
    """The estimator of either library, with the same parameters but for the store's class."""
    arguments: dict[str, Any] = {"num_proc": RANKS}
    if kind == "trainyard":
        import trainyard.horovod as library

        backend, places, made = library.SparkBackend, library.Store, library.TorchEstimator
    else:
        from horovod.spark.common import backend as theirs
        from horovod.spark.common import store as their_store
        from horovod.spark.torch import TorchEstimator

        backend, places, made = theirs.SparkBackend, their_store.Store, TorchEstimator
        arguments |= {"stdout": sys.stderr, "stderr": sys.stderr}
    return made(
        backend=backend(**arguments),
        store=places.create(store),
        model=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.5),
        loss=lambda scores, labels: F.cross_entropy(scores, labels.long()),
        feature_cols=["features"],
        label_cols=["label"],
        input_shapes=[[-1, 1, 28, 28]],
        batch_size=128,
        epochs=2,
        random_seed=0,
        verbose=0,
    )


def main() -> None:
    """Warm up, fit, transform, print."""
    kind, directory = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    rows = session.read.parquet(f"{directory}/train").select("features", "label")
    rows = rows.repartition(2 * RANKS).cache()  # with fewer partitions petastorm has no data
    count = rows.count()
    session.sparkContext.parallelize(range(RANKS), RANKS).map(lambda x: x).collect()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as store:
        made = estimator(kind, store, ConvNet())
        began = time.monotonic()
        model = made.fit(rows)
        fitted = time.monotonic()
        scored = model.transform(rows)
        scored.write.format("noop").mode("overwrite").save()
        seconds = {"fit": fitted - began, "transform": time.monotonic() - fitted}
        sample = scored.select("label", "label__output").limit(500).collect()
    right = sum(int(row[1].toArray().argmax()) == row[0] for row in sample)
    assert scored.count() == count
    assert right > 0.3 * len(sample), f"{right} of {len(sample)} are right: it did not train"
    print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
