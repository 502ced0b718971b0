"""The request by which a master's REST server makes a driver: spark-submit, run on a worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainyard import private, tickets
from trainyard_airflow import masking, settings
from trainyard_airflow.capacity import Demand
from trainyard_airflow.room import demand_of
from trainyard_airflow.submission import Submission, SubmitArguments, hide_secrets


@dataclass(frozen=True, kw_only=True)
class DriverRequest:
    """A request that lacks only its ticket.

    Attributes:
        words: the arguments of the worker's spark-submit.
        variables: environment variables of the driver.
        properties: Spark configuration of the driver itself.
        demand: what the job asks of the cluster.
    """

    words: list[str]
    variables: dict[str, str] = field(repr=False)
    properties: dict[str, str]
    demand: Demand

    def body(self, ticket: int) -> dict[str, Any]:
        """The request as the REST server takes it, for the driver of a ticket."""
        return {
            "action": "CreateSubmissionRequest",
            "clientSparkVersion": "4",
            "appResource": "",
            "mainClass": "org.apache.spark.deploy.SparkSubmit",
            "appArgs": self.words,
            "environmentVariables": {**self.variables, tickets.NUMBER: str(ticket)},
            "sparkProperties": self.properties,
        }


def driver_request(submission: Submission) -> DriverRequest:
    """What is asked of the master.

    What is in `sparkProperties` and `appArgs` shows in the driver's command line and in the
    worker's log; `environmentVariables` show in neither, so that everything secret travels there.

    Args:
        submission: the job and all that is asked of Spark.

    Raises:
        JobError: the program is missing, or the settings exclude each other.
    """
    job = submission.job
    public, secret = masking.split(submission.conf)
    environment = {
        "MLFLOW_TRACKING_URI": settings.tracking_uri(),
        **submission.env_vars,
        **private.variables(secret, submission.env_vars),
        "PYTHONUNBUFFERED": "1",
        tickets.RUN_DIR: job.run_dir,
    }
    hide_secrets(environment | secret)
    program = settings.cluster_program(job.job)
    hook = submission.make_hook(
        SubmitArguments(
            conf=public,
            properties_file=submission.properties_file,
            binary=None,
            application_args=[],
        )
    )
    # The spark-submit on the worker runs the driver where it is.
    hook._connection["deploy_mode"] = None
    words = [*hook._build_spark_common_args(), program, *job.argv()]
    demand = demand_of(public, hook, job)
    return DriverRequest(
        words=words,
        variables=environment,
        properties={
            "spark.app.name": str(hook._name or job.job),
            "spark.master": submission.master.url,
            "spark.driver.memory": f"{demand.driver_memory}m",
            "spark.driver.cores": str(demand.driver_cores),
            "spark.driver.supervise": "false",
        },
        demand=demand,
    )
