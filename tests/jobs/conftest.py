"""One Spark session for the jobs' tests, and prepared datasets made without Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A busy machine is no fault of what is tested.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
sys.path.insert(0, str(Path(__file__).parent))  # for the helpers beside the tests


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from trainyard.session import spark_session

    with spark_session("tests") as session:
        # As spark-submit --py-files does for a user's own network.
        session.sparkContext.addPyFile(str(Path(__file__).with_name("tiny_models.py")))
        yield session


@pytest.fixture(scope="session")
def digits(spark: SparkSession) -> DataFrame:
    """600 digits as vectors, half of them sparse, with a validation flag that is null for some."""
    from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
    from pyspark.sql.types import StructType
    from sklearn.datasets import load_digits

    bunch = load_digits()
    rows = []
    for number, (pixels, digit) in enumerate(zip(bunch.data[:600], bunch.target, strict=False)):
        scaled = pixels / 16
        vector = (
            DenseVector(scaled)
            if number % 2
            else SparseVector(64, np.flatnonzero(scaled), scaled[np.flatnonzero(scaled)])
        )
        held = None if number % 10 == 1 else number % 5 == 0
        rows.append((number, int(digit), held, f"text {number}", vector))
    schema: Any = StructType.fromDDL("id int, digit int, held boolean, more string")
    schema.add("pixels", VectorUDT())
    frame = spark.createDataFrame(rows, schema)
    return frame.repartition(3).cache()
