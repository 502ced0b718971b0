"""Spark's configuration of a submission: what goes before what, as spark-submit has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from trainyard.errors import JobError


def with_arguments(
    conf: Mapping[str, Any], given: SparkSubmitOperator | SparkSubmitHook
) -> dict[str, Any]:
    """A configuration with the provider's arguments for parts of it, which go before `--conf`.

    Args:
        conf: what is given as `--conf`.
        given: the provider's operator or hook, with arguments such as `executor_memory`.
    """
    arguments = {
        "spark.driver.memory": given._driver_memory,
        "spark.executor.memory": given._executor_memory,
        "spark.executor.cores": given._executor_cores,
        "spark.executor.instances": given._num_executors,
        "spark.cores.max": given._total_executor_cores,
    }
    return {**conf, **{name: value for name, value in arguments.items() if value is not None}}


def read_properties(path: Path) -> dict[str, str]:
    """A properties file, such as spark-defaults.conf.

    Raises:
        JobError: it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as problem:
        raise JobError(
            f"properties_file is {str(path)!r}, which cannot be read: {problem}.",
            "Correct the path.",
        ) from problem
    pairs = [line.replace("=", " ", 1).split(None, 1) for line in lines if line.strip()]
    return {p[0]: p[1].strip() for p in pairs if len(p) == 2 and not p[0].startswith(("#", "!"))}
