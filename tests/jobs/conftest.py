"""One Spark session for the jobs' tests, and prepared datasets made without Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine is no fault of what is tested.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))  # for the helpers beside the tests


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from trainyard.session import spark_session

    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    with spark_session("tests") as session:
        # As spark-submit --py-files does for a user's own network.
        session.sparkContext.addPyFile(str(Path(__file__).with_name("tiny_models.py")))
        yield session
