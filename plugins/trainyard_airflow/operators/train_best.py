"""Trains with what a search found best, by whichever engine it searched for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context

from trainyard.errors import JobError
from trainyard.specs import RunDirectory
from trainyard.specs.tune import ENGINES
from trainyard_airflow.operators.spark_job import SparkJobOperator, given


class TrainBestOperator(SparkJobOperator):
    """Run the training whose settings a task with the job `tune` found best; see its base.

    Args:
        search: task id of the search.
        jobs: by the engine's name, the training's settings that are not the search's: the dataset,
            ranks, names. What the search found goes before them.
        kwargs: what `SparkJobOperator` takes, except the job.
    """

    template_fields: Sequence[str] = ("engines", *SparkJobOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **SparkJobOperator.template_fields_renderers,
        "engines": "json",
    }

    def __init__(self, *, search: str, jobs: Mapping[str, RunDirectory], **kwargs: Any) -> None:
        super().__init__(job=next(iter(jobs.values())), **kwargs)
        self.search = search
        self.engines = {engine: dict(given(job)) for engine, job in jobs.items()}

    def rendered_job(self, context: Context) -> RunDirectory:
        """The job with what the search found; see its base."""
        best = context["ti"].xcom_pull(task_ids=self.search)["best"]
        if best["engine"] not in self.engines:
            raise JobError(
                f"the task {self.search!r} searched for {best['engine']}, and jobs of "
                f"{self.task_id!r} has {', '.join(self.engines)}.",
                "Name the training of that engine there too.",
            )
        self.contract = ENGINES[best["engine"]]
        self.settings = {**self.engines[best["engine"]], **best["settings"]}
        return super().rendered_job(context)
