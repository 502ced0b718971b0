"""Submits by a spark-submit on this machine, which stays until the job has ended.

In client mode the driver runs below it; in cluster mode YARN or Kubernetes runs the driver, and the
provider's hook follows it."""

from __future__ import annotations

import signal
from typing import Any

from airflow.sdk.exceptions import AirflowException

from trainyard.claims import last_claim, live_claim
from trainyard.job import EXIT_REFUSED
from trainyard.specs import RunDirectory
from trainyard_airflow import preflight, processes, settings
from trainyard_airflow.hook import ClientHook
from trainyard_airflow.outcome import Ended, earlier_result, outcome
from trainyard_airflow.private_conf import private_conf
from trainyard_airflow.progress import ProgressFollower
from trainyard_airflow.remote_driver import driver_environment
from trainyard_airflow.submission import (
    Submission,
    SubmitArguments,
    hide_secrets,
    job_environment,
    with_modules,
)

_LEFTOVER_ROUNDS = 5
"""Looks at the events after which processes that outlive spark-submit are ended."""


class ClientSubmission:
    """One submission by spark-submit, from its start to the end of its last process."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._job = submission.job
        self._log = submission.log
        self._hook: ClientHook | None = None
        self._is_killed = False

    def run(self) -> dict[str, Any]:
        """Submit the job, wait for it, and return its result.

        Raises:
            JobError: it cannot work as it is set.
            AirflowException: it failed; a retry continues where it stopped.
        """
        earlier_claim = self._end_earlier_attempt()
        if result := earlier_result(self._job):
            self._log.info("An earlier try finished in %s; nothing to do.", self._job.run_dir)
            return result
        master = self._submission.master
        is_remote = master.deploy_mode == "cluster"
        program = settings.cluster_program if is_remote else settings.program
        application = str(program(self._job.job))
        environment = self._environment(application.rpartition("/")[0])
        submitter = preflight.find_submitter(master.binary, environment)
        environment.setdefault("PYSPARK_PYTHON", submitter.python)
        environment.setdefault("PYSPARK_DRIVER_PYTHON", submitter.python)
        self._log.info(
            "Connection %s: Spark master %s, deploy mode %s. %s (Spark %s), Java %d, Python %s.",
            self._submission.conn_id,
            master.url,
            master.deploy_mode,
            submitter.spark_submit,
            submitter.spark or "of unknown version",
            submitter.java,
            submitter.python,
        )
        self._log.info("Run directory: %s", self._job.run_dir)
        conf = dict(self._submission.conf)
        if is_remote:
            conf |= driver_environment(master, self._submission.env_vars, environment)
        given = self._submission.properties_file
        with private_conf(conf, given, environment) as (conf, properties_file):
            hook = self._submission.make_hook(
                SubmitArguments(
                    conf=conf,
                    properties_file=properties_file,
                    binary=submitter.spark_submit,
                    application_args=self._job.argv(),
                )
            )
            code, ended = self._submit(ClientHook.adopt(hook), application, environment)
        result = outcome(self._job, ended, earlier_claim)
        if code:
            self._log.warning("%s wrote its result and then exited with %d.", self._job.job, code)
        return result

    def end(self) -> None:
        """End every process of the submission: the JVM, the driver, its workers."""
        self._is_killed = True
        if self._hook is not None:
            self._hook.end_driver()
            count = processes.end_submission(self._job.run_dir, patience=4.0)
            self._log.info("Ended %d processes of the submission.", count)

    def _submit(
        self, hook: ClientHook, application: str, environment: dict[str, str]
    ) -> tuple[int, Ended]:
        self._hook = hook
        run_dir = self._job.run_dir
        leftover_rounds = 0

        def end_leftovers() -> None:
            # One that outlives spark-submit holds its output open, and the task would wait for it.
            nonlocal leftover_rounds
            leftover_rounds += hook.exit_code() is not None
            if leftover_rounds == _LEFTOVER_ROUNDS:
                processes.end_submission(run_dir)

        try:
            with ProgressFollower(run_dir, self._log, each_round=end_leftovers):
                if self._is_killed:
                    raise AirflowException("The task was killed before it submitted.")
                code = hook.run(application, environment)
        finally:
            processes.end_submission(run_dir)
        if self._is_killed:
            raise AirflowException(f"The task was killed, and {self._job.job} with it.")
        return code, Ended(
            cause=hook.cause,
            is_refused=code == EXIT_REFUSED,
            unexplained=_unexplained(self._job, code, hook.last_line),
        )

    def _environment(self, jobs_folder: str) -> dict[str, str]:
        environment = job_environment(self._submission.env_vars)
        hide_secrets(environment)
        environment.setdefault("MLFLOW_TRACKING_URI", settings.tracking_uri())
        environment = with_modules(environment, jobs_folder)
        environment["PYTHONUNBUFFERED"] = "1"
        environment[processes.MARKER] = self._job.run_dir
        return environment

    def _end_earlier_attempt(self) -> int:
        """Make sure that no earlier attempt still works in the run directory.

        Returns:
            Number of the last claim on it, 0 without one.

        Raises:
            AirflowException: a driver lives that only its own machine can end.
        """
        run_dir = self._job.run_dir
        count = processes.end_submission(run_dir)
        if count:
            self._log.warning("Ended %d processes that an earlier try had left behind.", count)
        if claim := live_claim(run_dir):
            raise AirflowException(
                f"cause: {run_dir} is claimed by a live driver that this task did not start here:"
                f" process {claim.pid} on {claim.host}. fix: End that process, or wait for it."
            )
        last = last_claim(run_dir)
        return last.number if last else 0


def _unexplained(job: RunDirectory, code: int, last_line: str) -> str:
    if code == 0:
        return (
            f"cause: {job.job} ended with exit code 0 and wrote no result into {job.run_dir}."
            " fix: Read its log above; a job's program must end with run_job."
        )
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return (
            f"cause: {job.job} was killed by signal 9, most likely because memory ran out."
            " fix: Give it more memory (driver_memory), or less to hold at once: a smaller"
            " batch_size, fewer ranks or workers."
        )
    return (
        f"cause: {job.job} ended with exit code {code} before it could say why; its last line"
        f" was: {last_line or '(nothing)'} fix: Read its log above."
    )
