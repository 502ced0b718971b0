"""Runs a Trainyard job through spark-submit, follows it, and trusts nothing but its manifest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, Context
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.log import mask_secret

from trainyard import rundir
from trainyard.claims import claim_lives, last_claim
from trainyard.errors import JobError
from trainyard.layout import run_directory
from trainyard.specs import RunDirectory
from trainyard_airflow import masking, preflight, processes, settings
from trainyard_airflow.connection import SparkMaster, resolve
from trainyard_airflow.hook import ClientHook
from trainyard_airflow.outcome import Ended, failed, outcome
from trainyard_airflow.private_conf import private_conf
from trainyard_airflow.progress import ProgressFollower

_NOT_FOR_JOBS = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_", "_AIRFLOW")
"""Airflow's own variables, which hold its keys and passwords: a job does not get them."""

_QUIET = {"spark.log.level": "WARN"}
"""Spark tells the log of a task about every block and port otherwise; conf of the operator wins."""

_LEFTOVER_ROUNDS = 5
"""Looks at the events after which processes that outlive spark-submit are ended."""


class SparkJobOperator(SparkSubmitOperator):
    """Run a job on Spark and return its result.

    The job's settings may be templates. Its run directory is the operator's to choose: one for each
    DAG run, task and generation, so that a retry continues in it and a clear starts anew. What the
    job wrote into `result.json` becomes the task's XCom (without the settings) and, flat, the extra
    of the asset events of every outlet. A job that did not write it has failed, whatever it
    answered.

    Args:
        job: the job's settings.
        overrides: settings that replace the job's, by name. Dynamic mapping expands over them:
            `SparkJobOperator.partial(task_id=..., job=...).expand(overrides=[{"seed": 1}, ...])`.
        kwargs: what `SparkSubmitOperator` takes, except the application and its arguments.
    """

    template_fields: Sequence[str] = ("settings", *SparkSubmitOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"settings": "json"}

    def __init__(
        self,
        *,
        job: RunDirectory,
        overrides: Mapping[str, Any] | None = None,
        name: str = "{{ ti.dag_id }}.{{ ti.task_id }}",
        **kwargs: Any,
    ) -> None:
        super().__init__(application="", application_args=None, name=name, **kwargs)
        self.contract = type(job)
        self.settings = {**dict(_given(job)), **(overrides or {})}
        self._marker: str | None = None
        self._is_killed = False

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override] # provider: None
        """Submit the job and wait for its result.

        Raises:
            AirflowFailException: it cannot work with these settings or data, retried or not.
            AirflowException: it failed; a retry continues where it stopped.
        """
        try:
            job = self.rendered_job(context)
            earlier_claim = self._end_earlier_attempt(job.run_dir)
            result = self._earlier_result(job) or self._run(job, earlier_claim)
        except JobError as error:
            raise failed(error) from None
        finished = {"run_dir": job.run_dir, **result}
        del finished["settings"]
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update(_flat(finished))
        return finished

    def rendered_job(self, context: Context) -> RunDirectory:
        """The job with its rendered settings, checked, and its run directory.

        Raises:
            JobError: a setting is not allowed, or would show a secret.
        """
        given = dict(self.settings)
        if "run_dir" not in given:
            ti = context["ti"]
            given["run_dir"] = run_directory(
                settings.store_root(),
                dag_id=ti.dag_id,
                run_id=ti.run_id,
                task_id=ti.task_id,
                map_index=-1 if ti.map_index is None else ti.map_index,
                generation=ti.max_tries,
            )
        if given.get("datasets", "") is None:
            given["datasets"] = settings.datasets()
        for setting, value in given.items():
            if masking.secrets_in(str(value)):
                raise JobError(
                    f"setting {setting!r} of {self.contract.job} holds a password or a token, which"
                    " would show in the process list and be recorded with the result.",
                    "Take it out and give it to the job by environment: env_vars of the operator.",
                )
        return self.contract.from_mapping(given)

    def on_kill(self) -> None:
        """End every process of the submission: the JVM, the driver, its workers."""
        self._is_killed = True
        if self._marker is not None:
            count = processes.end_submission(self._marker, patience=4.0)
            self.log.info("Ended %d processes of the submission.", count)

    def _earlier_result(self, job: RunDirectory) -> dict[str, Any] | None:
        """The result that an earlier try wrote before Airflow lost sight of it."""
        result = rundir.read_result(job.run_dir)
        if result is None:
            return None
        if (result["job"], result["settings"]) != (job.job, job.to_mapping()):
            raise JobError(
                f"{job.run_dir} holds a result that was made with other settings.",
                "Clear the task: it then works in a new directory.",
            )
        self.log.info("An earlier try finished %s in %s; nothing to do.", job.job, job.run_dir)
        return result

    def _run(self, job: RunDirectory, earlier_claim: int) -> dict[str, Any]:
        master = resolve(self._conn_id, deploy_mode=self._deploy_mode, binary=self._spark_binary)
        _check_slots(job, master)
        application = settings.program(job.job)
        environment = self._environment(job, application.parent)
        submitter = preflight.find_submitter(master.binary, environment)
        environment.setdefault("PYSPARK_PYTHON", submitter.python)
        self.log.info(
            "Connection %s: Spark master %s, deploy mode %s. %s (Spark %s), Java %d, Python %s.",
            self._conn_id,
            master.url,
            master.deploy_mode,
            submitter.spark_submit,
            submitter.spark or "of unknown version",
            submitter.java,
            submitter.python,
        )
        self.log.info("Run directory: %s", job.run_dir)
        self.conf = {**_QUIET, **(self.conf or {})}
        self._spark_binary = submitter.spark_submit
        self.application_args = job.argv()
        with private_conf(self.conf, self.properties_file, environment) as (conf, properties_file):
            self.conf, self.properties_file = conf, properties_file
            ended = self._submit(str(application), job, environment)
        result = outcome(job, ended, earlier_claim)
        if ended.code:
            self.log.warning("%s wrote its result and then exited with %d.", job.job, ended.code)
        return result

    def _submit(self, application: str, job: RunDirectory, environment: dict[str, str]) -> Ended:
        # Not by the hook's env_vars: on YARN and Kubernetes it puts them into the command line.
        self.env_vars = None
        hook = ClientHook.adopt(self._get_hook())
        self._hook = hook
        self._marker = job.run_dir
        leftover_rounds = 0

        def end_leftovers() -> None:
            # One that outlives spark-submit holds its output open, and the task would wait for it.
            nonlocal leftover_rounds
            leftover_rounds += hook.exit_code() is not None
            if leftover_rounds == _LEFTOVER_ROUNDS:
                processes.end_submission(job.run_dir)

        try:
            with ProgressFollower(job.run_dir, self.log, each_round=end_leftovers):
                if self._is_killed:
                    raise AirflowException("The task was killed before it submitted.")
                code = hook.run(application, environment)
        finally:
            processes.end_submission(job.run_dir)
        if self._is_killed:
            raise AirflowException(f"The task was killed, and {job.job} with it.")
        return Ended(code=code, cause=hook.cause, last_line=hook.last_line)

    def _environment(self, job: RunDirectory, jobs_folder: Path) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_FOR_JOBS)}
        environment = inherited | {k: str(v) for k, v in (self.env_vars or {}).items()}
        for name, value in environment.items():
            for secret in masking.secrets_of(name, value):
                mask_secret(secret)
        environment.setdefault("MLFLOW_TRACKING_URI", settings.tracking_uri())
        modules = [str(jobs_folder), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, modules))
        environment["PYTHONUNBUFFERED"] = "1"
        environment[processes.MARKER] = job.run_dir
        return environment

    def _end_earlier_attempt(self, run_dir: str) -> int:
        """Make sure that no earlier attempt still works in the run directory.

        Returns:
            Number of the last claim on it, 0 without one.

        Raises:
            AirflowException: a driver lives that only its own machine can end.
        """
        count = processes.end_submission(run_dir)
        if count:
            self.log.warning("Ended %d processes that an earlier try had left behind.", count)
        claim = last_claim(run_dir)
        if claim is None:
            return 0
        if claim_lives(run_dir, claim):
            raise AirflowException(
                f"cause: {run_dir} is claimed by a live driver that this task did not start here:"
                f" process {claim.pid} on {claim.host}. fix: End that process, or wait for it."
            )
        return claim.number


def _given(job: RunDirectory) -> Iterable[tuple[str, Any]]:
    """The settings, without those that are left to the operator."""
    values = job.to_mapping()
    for field in job.settings():
        if field.setting.template is None or values[field.name] != field.setting.template:
            yield field.name, values[field.name]


def _check_slots(job: RunDirectory, master: SparkMaster) -> None:
    if master.slots is not None and job.slots > master.slots:
        raise JobError(
            f"{job.job} runs {job.slots} tasks at once, and the Spark master {master.url} has"
            f" {master.slots} slots.",
            f"Set {job.slots_setting} to {master.slots} or less, or use a connection with more"
            f" slots, such as local[{job.slots}].",
        )


def _flat(result: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names: an asset event's extra is plain JSON."""
    flat: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
