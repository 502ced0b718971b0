"""What a driver that YARN or Kubernetes starts is given: it inherits nothing from this machine."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard_airflow.connection import SparkMaster

_YARN = "spark.yarn.appMasterEnv."
_KUBERNETES = "spark.kubernetes.driverEnv."

_NEEDED = ("MLFLOW_TRACKING_URI", "PYTHONPATH", "PYTHONUNBUFFERED")
"""Variables of a job's environment that hold on another machine too."""


def driver_environment(
    master: SparkMaster, env_vars: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """The user's variables and those that a job needs, as Spark configuration.

    What is secret among it goes the way of all secret configuration, by a private file.

    Args:
        master: YARN or Kubernetes.
        env_vars: what the user gives the job.
        environment: the job's, as it would be on this machine.
    """
    prefix = _KUBERNETES if master.url.startswith("k8s://") else _YARN
    needed = {name: environment[name] for name in _NEEDED if name in environment}
    return {prefix + name: value for name, value in {**needed, **env_vars}.items()}
