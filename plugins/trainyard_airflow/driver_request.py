"""The request by which a master's REST server makes a driver: spark-submit, run on a worker."""

from __future__ import annotations

from typing import Any

from trainyard import private, tickets
from trainyard_airflow import masking, settings
from trainyard_airflow.submission import Submission, SubmitArguments, hide_secrets


def driver_request(submission: Submission, ticket: int) -> dict[str, Any]:
    """The body of the request.

    What is in `sparkProperties` and `appArgs` shows in the driver's command line and in the
    worker's log; `environmentVariables` show in neither, so that everything secret travels there.

    Args:
        submission: the job and all that is asked of Spark.
        ticket: number of the driver's ticket.

    Raises:
        JobError: the program is missing.
    """
    job, rest = submission.job, submission.master.rest
    public, secret = masking.split(submission.conf)
    environment = {
        "MLFLOW_TRACKING_URI": settings.tracking_uri(),
        **submission.env_vars,
        **private.variables(secret, submission.env_vars),
        "PYTHONUNBUFFERED": "1",
        tickets.RUN_DIR: job.run_dir,
        tickets.NUMBER: str(ticket),
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
    submission.log.info(
        "Connection %s: Spark master %s, deploy mode cluster, by %s: %s",
        submission.conn_id,
        submission.master.url,
        ", ".join(rest.urls if rest else ()),
        masking.mask_command(words),
    )
    memory = hook._driver_memory or public.get("spark.driver.memory") or "1g"
    return {
        "action": "CreateSubmissionRequest",
        "clientSparkVersion": "4",
        "appResource": "",
        "mainClass": "org.apache.spark.deploy.SparkSubmit",
        "appArgs": words,
        "environmentVariables": environment,
        "sparkProperties": {
            "spark.app.name": str(hook._name or job.job),
            "spark.master": submission.master.url,
            "spark.driver.memory": str(memory),
            "spark.driver.cores": str(public.get("spark.driver.cores", 1)),
            "spark.driver.supervise": "false",
        },
    }
