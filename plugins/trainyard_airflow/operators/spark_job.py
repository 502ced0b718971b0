"""Runs a Trainyard job on Spark, waits for it, and trusts nothing but its manifest."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, TypeVar

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, Context

from trainyard.errors import JobError
from trainyard.layout import run_directory
from trainyard.specs import RunDirectory
from trainyard_airflow import masking, preflight, settings
from trainyard_airflow.arguments import check_arguments
from trainyard_airflow.capacity import check_known_slots
from trainyard_airflow.client_submission import ClientSubmission
from trainyard_airflow.cluster_driver import ClusterDriver
from trainyard_airflow.cluster_submission import ClusterSubmission
from trainyard_airflow.connection import SparkMaster, resolve
from trainyard_airflow.drivers import Driver
from trainyard_airflow.outcome import earlier_result, failed, record_refusal
from trainyard_airflow.room import MOST_SECONDS, NoRoomError
from trainyard_airflow.submission import Running, Submission, SubmitArguments

_DEFAULTS = {
    # Spark tells the log of a task about every block and port otherwise.
    "spark.log.level": "WARN",
    # Of what Spark's pages and logs show it hides less by itself.
    "spark.redaction.regex": masking.REDACTION,
}
"""Spark configuration of every job; conf of the operator goes before it."""


Started = TypeVar("Started", bound=Running)


class SparkJobOperator(SparkSubmitOperator):
    """Run a job on Spark and return its result.

    The job's settings may be templates. Its run directory is the operator's to choose: one for each
    DAG run, task and generation, so that a retry continues in it and a clear starts anew. What the
    job wrote into `result.json` becomes the task's XCom (without the settings) and, flat, the extra
    of the asset events of every outlet. A job that did not write it has failed, whatever it
    answered.

    In client mode spark-submit and the driver run below the task. In cluster mode the driver runs
    on a worker of a standalone cluster; the task waits in the triggerer and holds no slot, a retry
    re-attaches to the driver, and a clear, a kill or a time-out ends it.

    Args:
        job: the job's settings.
        overrides: settings that replace the job's, by name. Dynamic mapping expands over them:
            `SparkJobOperator.partial(task_id=..., job=...).expand(overrides=[{"seed": 1}, ...])`.
        deferrable: whether a task in cluster mode waits in the triggerer, and not in a worker.
        pool: the Airflow pool; by default that of the option `pool` of [trainyard].
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
        deferrable: bool = True,
        pool: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            application="",
            application_args=None,
            name=name,
            pool=pool or settings.pool(),
            **kwargs,
        )
        self.contract = type(job)
        self.settings = {**dict(given(job)), **(overrides or {})}
        self.deferrable = deferrable
        self._running: Running | None = None
        self._is_killed = False

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override] # provider: None
        """Submit the job and wait for its result.

        Raises:
            AirflowFailException: it cannot work with these settings or data, retried or not.
            AirflowException: it failed, or the workers that are there are too few; a retry
                continues where it stopped.
        """
        return self._execute(context, waiting_since=time.time())

    def execute_with_room(
        self, context: Context, event: dict[str, Any], waiting_since: float
    ) -> dict[str, Any]:
        """Submit the job, for which the cluster may have room now; see `execute`."""
        return self._execute(context, waiting_since)

    def _execute(self, context: Context, waiting_since: float) -> dict[str, Any]:
        with _refusals(lambda: self._run_dir(context)):
            job = self.rendered_job(context)
            master = resolve(
                self._conn_id, deploy_mode=self._deploy_mode, binary=self._spark_binary
            )
            check_known_slots(job, master)
            check_arguments(self.conf, self.env_vars, self._travelling())
            submission = self._submission(job, master)
            if master.rest is None:
                if master.deploy_mode == "client":
                    preflight.check_files(self._travelling())
                here = self._run(ClientSubmission(submission))
                return self._finished(context, job, here.run())
            there = self._run(
                ClusterSubmission(submission, context["ti"], context["task_state_store"])
            )
            driver = self._begin(there, waiting_since)
            if driver is None:
                return self._finished(context, job, earlier_result(job) or {})
            return self._wait_for(driver, self._deadline(), context)

    def execute_complete(
        self,
        context: Context,
        event: dict[str, Any],
        driver: dict[str, Any],
        deadline: float | None,
    ) -> dict[str, Any]:
        """Take the result after the driver's end; the triggerer's event says how it ended."""
        with _refusals(lambda: self._run_dir(context)):
            return self._conclude(context, Driver.from_mapping(driver), event, deadline)

    def rendered_job(self, context: Context) -> RunDirectory:
        """The job with its rendered settings, checked, and its run directory.

        Raises:
            JobError: a setting is not allowed, or would show a secret.
        """
        values = {**self.settings, "run_dir": self._run_dir(context)}
        if values.get("datasets", "") is None:
            values["datasets"] = settings.datasets()
        for setting, value in values.items():
            if masking.secrets_in(str(value)):
                raise JobError(
                    f"setting {setting!r} of {self.contract.job} holds a password or a token, which"
                    " would show in the process list and be recorded with the result.",
                    "Take it out and give it to the job by environment: env_vars of the operator.",
                )
        return self.contract.from_mapping(values)

    def _run_dir(self, context: Context) -> str:
        if "run_dir" in self.settings:
            return str(self.settings["run_dir"])
        ti = context["ti"]
        return run_directory(
            settings.store_root(),
            dag_id=ti.dag_id,
            run_id=ti.run_id,
            task_id=ti.task_id,
            map_index=-1 if ti.map_index is None else ti.map_index,
            generation=ti.max_tries,
        )

    def on_kill(self) -> None:
        """End every process of the job, here or on the cluster."""
        self._is_killed = True
        if self._running is not None:
            self._running.end()

    def _travelling(self) -> dict[str, str | None]:
        """The files of a submission, by the argument that names them."""
        return {
            "py_files": self.py_files,
            "files": self.files,
            "archives": self._archives,
            "jars": self.jars,
            "properties_file": self.properties_file,
        }

    def _submission(self, job: RunDirectory, master: SparkMaster) -> Submission:
        return Submission(
            job=job,
            conn_id=self._conn_id,
            master=master,
            conf={**_DEFAULTS, **(self.conf or {})},
            properties_file=self.properties_file,
            env_vars={name: str(value) for name, value in (self.env_vars or {}).items()},
            make_hook=self._make_hook,
            log=self.log,
        )

    def _make_hook(self, arguments: SubmitArguments) -> SparkSubmitHook:
        self.conf, self.properties_file = arguments.conf, arguments.properties_file
        self.application_args = arguments.application_args
        self._spark_binary = arguments.binary
        # Not by the hook's env_vars: on YARN and Kubernetes it puts them into the command line.
        self.env_vars = None
        return self._get_hook()

    def _run(self, running: Started) -> Started:
        """Note what on_kill ends; it may have been called before there was anything."""
        self._running = running
        if self._is_killed:
            running.end()
        return running

    def _deadline(self) -> float | None:
        timeout = self.execution_timeout
        return None if timeout is None else time.time() + timeout.total_seconds()

    def _begin(self, there: ClusterSubmission, waiting_since: float) -> Driver | None:
        """Begin when the cluster has room; waiting for it holds no slot either."""
        while True:
            try:
                return there.begin(must_fit=time.time() - waiting_since < MOST_SECONDS)
            except NoRoomError as error:
                self.log.info("Waiting for room on the cluster: %s", error)
            if self.deferrable:
                # Here, as below: a scheduler that parses a DAG has no use for triggers.
                from trainyard_airflow.triggers.spark_room import SparkRoomTrigger

                demand = dataclasses.asdict(there.demand)
                self.defer(
                    trigger=SparkRoomTrigger(
                        conn_id=self._conn_id, demand=demand, since=waiting_since
                    ),
                    method_name="execute_with_room",
                    kwargs={"waiting_since": waiting_since},
                )

    def _wait_for(self, driver: Driver, deadline: float | None, context: Context) -> dict[str, Any]:
        if self.deferrable:
            from trainyard_airflow.triggers.spark_driver import SparkDriverTrigger

            values = driver.to_mapping()
            self.defer(
                trigger=SparkDriverTrigger(driver=values, deadline=deadline),
                method_name="execute_complete",
                kwargs={"driver": values, "deadline": deadline},
            )
        event = self._run(ClusterDriver(driver, self.log)).wait()
        return self._conclude(context, driver, event, deadline)

    def _conclude(
        self, context: Context, driver: Driver, event: dict[str, Any], deadline: float | None
    ) -> dict[str, Any]:
        job = self.rendered_job(context)
        concluded = self._run(ClusterDriver(driver, self.log)).conclude(job, event)
        if isinstance(concluded, Driver):
            return self._wait_for(concluded, deadline, context)
        return self._finished(context, job, concluded)

    def _finished(
        self, context: Context, job: RunDirectory, result: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The XCom, told to the outlets too."""
        finished = {"run_dir": job.run_dir, **result}
        del finished["settings"]
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra.update(_flat(finished))
        return finished


@contextmanager
def _refusals(run_dir: Callable[[], str]) -> Iterator[None]:
    """What a user has to change fails the task for good; its run directory says so too."""
    try:
        yield
    except JobError as error:
        with suppress(OSError, JobError):
            record_refusal(run_dir(), error)
        raise failed(error) from None


def given(job: RunDirectory) -> Iterable[tuple[str, Any]]:
    """A job's settings, without those that are left to the operator."""
    values = job.to_mapping()
    for field in job.settings():
        if field.setting.template is None or values[field.name] != field.setting.template:
            yield field.name, values[field.name]


def _flat(result: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names: an asset event's extra is plain JSON."""
    flat: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
