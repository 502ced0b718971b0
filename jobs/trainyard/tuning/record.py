"""A search in MLflow: its run, and below it a run for each trial that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial, TrialState

from trainyard import registry, rundir
from trainyard.errors import JobError
from trainyard.layout import TRIALS, join
from trainyard.specs import Tune
from trainyard.tracking import PARENT_TAG, RUN_DIR_TAG, experiment_id, log_files, start_run, tagged
from trainyard.tuning.engines import Goal
from trainyard.tuning.study import Study

if TYPE_CHECKING:
    from mlflow.entities import Run

TRIAL = "trainyard.trial"
"""Tag of a trial's run: its number."""

_NAME = "mlflow.runName"


class Record:
    """Keeps MLflow up to what a study holds; what an earlier attempt recorded is not added twice.

    Args:
        spec: the search.
        goal: what trials are compared by.
        study: the study; its trials of this run are recorded.
        fingerprint: of the dataset.

    Raises:
        JobError: the registry does not answer.
    """

    def __init__(self, spec: Tune, goal: Goal, study: Study, fingerprint: str) -> None:
        self._spec = spec
        self._goal = goal
        self._study = study
        self._experiment = experiment_id(spec.experiment)
        self._client = registry.client()
        with registry.answering():
            self.run = self._own_run(fingerprint)
            self._recorded = self._known()

    def update(self) -> None:
        """Add the trials that have ended since."""
        with registry.answering():
            for trial in self._study.own:
                if trial.state.is_finished() and trial.number not in self._recorded:
                    self._add(trial)
                    self._recorded.add(trial.number)

    def finish(self, metrics: Mapping[str, float], files: Mapping[str, bytes]) -> None:
        """End the search's run, with what came of it."""
        self.update()
        with registry.answering():
            for name, value in metrics.items():
                self._client.log_metric(self.run.info.run_id, name, value)
            log_files(self._client, self.run, files)
            self._client.set_terminated(self.run.info.run_id)

    def fail(self) -> None:
        """End the search's run as failed, for now; what went wrong first is not to be hidden."""
        with suppress(JobError):
            self.update()
            with registry.answering():
                self._client.set_terminated(self.run.info.run_id, "FAILED")

    def _own_run(self, fingerprint: str) -> Run:
        found = self._client.search_runs(
            [self._experiment], tagged({RUN_DIR_TAG: self._spec.run_dir})
        )
        if found:
            self._client.update_run(found[0].info.run_id, status="RUNNING")
            return found[0]
        tags = {
            RUN_DIR_TAG: self._spec.run_dir,
            "trainyard.dataset": fingerprint,
            _NAME: f"search of {self._spec.engine}",
        }
        params = {**self._spec.to_mapping(), "metric": self._goal.metric}
        return start_run(self._client, self._experiment, params, tags, ())

    def _known(self) -> set[int]:
        """The trials that have a run; what an interrupted attempt left of one is removed."""
        known: set[int] = set()
        token: Any = None
        while True:
            page = self._client.search_runs(
                [self._experiment], tagged({PARENT_TAG: self.run.info.run_id}), page_token=token
            )
            for run in page:
                if run.info.status == "RUNNING":
                    self._client.delete_run(run.info.run_id)
                else:
                    known.add(int(run.data.tags[TRIAL]))
            if not (token := page.token):
                return known

    def _add(self, trial: FrozenTrial) -> None:
        directory = join(self._spec.run_dir, TRIALS, f"{trial.number:05d}")
        tags = {
            PARENT_TAG: self.run.info.run_id,
            RUN_DIR_TAG: directory,
            TRIAL: str(trial.number),
            "trainyard.state": trial.state.name.lower(),
            _NAME: f"trial {trial.number}",
        }
        for name in ("cause", "worker"):
            if name in trial.user_attrs:
                tags[f"trainyard.{name}"] = trial.user_attrs[name]
        history = _history(directory)
        values = self._study.values(trial)
        run = start_run(self._client, self._experiment, values, tags, history)
        if trial.value is not None:
            self._client.log_metric(run.info.run_id, f"trial_{self._goal.metric}", trial.value)
        status = "FAILED" if trial.state == TrialState.FAIL else "FINISHED"
        self._client.set_terminated(run.info.run_id, status)


def _history(directory: str) -> list[Mapping[str, float | None]]:
    """The figures of each epoch or round of a trial, as it told them."""
    events = rundir.read_events(directory, {})
    told = {event["step"]: event["values"] for event in events if event["kind"] == "metric"}
    return [told.get(step, {}) for step in range(1, max(told, default=0) + 1)]
