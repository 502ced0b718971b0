"""What a submission is made from, however it is submitted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.log import mask_secret

from trainyard.specs import RunDirectory
from trainyard_airflow import masking
from trainyard_airflow.connection import SparkMaster

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_NOT_FOR_JOBS = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_", "_AIRFLOW")
"""Airflow's own variables, which hold its keys and passwords: a job does not get them."""


@dataclass(frozen=True, kw_only=True)
class SubmitArguments:
    """The arguments of spark-submit that a submission decides itself.

    Attributes:
        conf: Spark configuration for the command line; nothing secret.
        properties_file: a file of more of it.
        binary: the program that submits, where one does.
        application_args: the job's own arguments.
    """

    conf: dict[str, Any]
    properties_file: str | None
    binary: str | None
    application_args: list[str]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job that is to be submitted.

    Attributes:
        job: its settings.
        conn_id: the Spark connection.
        master: what the connection means.
        conf: Spark configuration, secrets too.
        properties_file: the user's file of more of it.
        env_vars: environment variables that the user gives the job.
        make_hook: the provider's hook with all the other arguments of the operator.
        log: the task's log.
    """

    job: RunDirectory
    conn_id: str
    master: SparkMaster
    conf: Mapping[str, Any] = field(repr=False)
    properties_file: str | None
    env_vars: Mapping[str, str] = field(repr=False)
    make_hook: Callable[[SubmitArguments], SparkSubmitHook]
    log: Logger


class Running(Protocol):
    """What a task has started and can end."""

    def end(self) -> None:
        """End every process of it, within the 5 seconds that Airflow gives."""


def job_environment(env_vars: Mapping[str, str]) -> dict[str, str]:
    """The variables of this process that a job may have, and those that the user gives it."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_FOR_JOBS)}
    return inherited | dict(env_vars)


def with_modules(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """Variables with which Python finds the modules of a folder before all others."""
    modules = [folder, environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, modules))}


def hide_secrets(environment: Mapping[str, str]) -> None:
    """Keep the secrets among variables out of the task's log."""
    for name, value in environment.items():
        for secret in masking.secrets_of(name, value):
            mask_secret(secret)
