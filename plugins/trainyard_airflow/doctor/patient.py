"""What the doctor looks at: the Spark tasks of a DAG, as far as their settings are known by now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import DAG, Context

from trainyard.contract import is_template
from trainyard.errors import JobError
from trainyard.layout import join
from trainyard.specs import RunDirectory
from trainyard_airflow import settings
from trainyard_airflow.arguments import check_arguments
from trainyard_airflow.doctor.findings import Finding, error
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.spark_conf import with_arguments

if TYPE_CHECKING:
    from jinja2 import Environment

LATER = "{{ later }}"
"""Stands for what only an earlier task's result will tell."""

_TEXT_LATER = "later-"

Render = Callable[[Any], Any]
"""Renders a template; raises where it cannot yet."""


@dataclass(frozen=True, kw_only=True)
class Patient:
    """A task that will be submitted.

    Attributes:
        task_id: its name.
        job: its settings; values from results of earlier tasks are missing. None if refused.
        conn_id: Spark connection.
        deploy_mode, binary: the operator's own choice, None for the connection's.
        conf: Spark configuration of the operator, its own arguments for it included.
        properties_file: a file of more of it.
        env_vars: environment variables of the job.
        archives: what is shipped to executors.
    """

    task_id: str
    job: RunDirectory | None
    conn_id: str
    deploy_mode: str | None = None
    binary: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    properties_file: str | None = None
    env_vars: Mapping[str, str] = field(default_factory=dict)
    archives: str = ""

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules that its tasks import."""
        return () if self.job is None else self.job.imports


def patients_of(dag: DAG, context: Mapping[str, Any]) -> tuple[list[Patient], list[Finding]]:
    """The Spark tasks of a DAG, and what is refused of their settings.

    Args:
        dag: the DAG; its tasks are not rendered.
        context: for their templates; `params` at least.
    """
    patients: list[Patient] = []
    findings: list[Finding] = []
    for task in dag.tasks:
        if isinstance(task, SparkJobOperator):
            jinja = task.get_template_env(dag)
            found, refused = patient(task, partial(_render, task, context, jinja))
            patients.append(found)
            findings += refused
    return patients, findings


def patient(task: SparkJobOperator, render: Render) -> tuple[Patient, list[Finding]]:
    """A task with what can be rendered before the first task of its DAG has run.

    Args:
        task: the operator, not rendered.
        render: raises an exception for a template that reads a result which is not there.
    """
    job, findings = _job(task, render)
    conf, env_vars = task.conf or {}, task.env_vars or {}
    try:
        check_arguments(conf, env_vars, {"archives": task._archives})
    except JobError as problem:
        findings.append(error(task.task_id, problem))
        conf, env_vars = {}, {}
    return Patient(
        task_id=task.task_id,
        job=job,
        conn_id=task._conn_id,
        deploy_mode=task._deploy_mode,
        binary=task._spark_binary,
        conf=_known(with_arguments(conf, task), render),
        properties_file=task.properties_file,
        env_vars=_known(env_vars, render),
        archives=task._archives or "",
    ), findings


def is_later(text: str) -> bool:
    """Whether a text of a task's settings stands for what only an earlier task's result tells."""
    return text.startswith(_TEXT_LATER)


def _render(
    task: SparkJobOperator, context: Mapping[str, Any], jinja: Environment, value: Any
) -> Any:
    return task.render_template(value, cast(Context, context), jinja_env=jinja)


def _job(task: SparkJobOperator, render: Render) -> tuple[RunDirectory | None, list[Finding]]:
    """The job with placeholders, so that rules across its other settings are checked already."""
    contract = task.contract
    given = {name: _rendered(value, render) for name, value in task.settings.items()}
    try:
        given.setdefault("run_dir", join(settings.store_root(), "doctor"))
    except JobError:  # the store has a finding of its own
        given.setdefault("run_dir", "/doctor")
    if given.get("datasets", "") is None:
        del given["datasets"]
    texts = {f.name for f in contract.settings() if f.kind is str and not f.setting.choices}
    complete = {k: _TEXT_LATER + k if v == LATER and k in texts else v for k, v in given.items()}
    try:
        return contract.from_mapping(complete), []
    except JobError as problem:
        return None, [error(task.task_id, problem)]


def _rendered(value: Any, render: Render) -> Any:
    if not is_template(value):
        return value
    try:
        return render(value)
    except Exception:  # whatever a template raises over a result that is not there
        return LATER


def _known(values: Mapping[str, Any], render: Render) -> dict[str, str]:
    rendered: Iterable[tuple[str, Any]] = ((k, _rendered(v, render)) for k, v in values.items())
    return {name: str(value) for name, value in rendered if value != LATER}
