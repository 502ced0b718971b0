"""Search the settings of a training: many trials side by side, each in one of Spark's slots.

    MLFLOW_TRACKING_URI=sqlite:////tmp/run/mlflow.db \\
    spark-submit --master 'local[2]' jobs/tune.py \\
        --run-dir=/tmp/run/tune --dataset=/tmp/run/prepare/data --engine=xgboost --trials=16

A tiny one, to see that everything is in place:

    spark-submit --master 'local[1]' jobs/tune.py --trials=2 --fixed='{"epochs": 1}' \\
        --run-dir=/tmp/tune --dataset=/tmp/run/prepare/data

An attempt after a killed one goes on: it runs no trial again that has ended, and those that were
running from their last checkpoint. The result's `best.settings` are what a training of the whole
engine is given. TRAINYARD_STUDIES names a database for studies, where they are not to be files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from trainyard import store
from trainyard.dataset import Dataset
from trainyard.errors import JobError, SettingError
from trainyard.job import Run, run_job
from trainyard.layout import REPORT, TRIALS_REPORT, join
from trainyard.repeating import Repeating
from trainyard.rundir import finite
from trainyard.session import spark_session
from trainyard.specs import TrainHorovod, Tune
from trainyard.specs.tune import ENGINES
from trainyard.tuning import plots
from trainyard.tuning.engines import Goal, Training, goal_of
from trainyard.tuning.record import Record
from trainyard.tuning.studies import open_study
from trainyard.tuning.study import Study
from trainyard.tuning.sweep import Sweep

_RECORD_SECONDS = 2.0


def check(spec: Tune, dataset: Dataset) -> Goal:
    """Refuse what every trial, or those at an end of the space, would stumble over.

    Raises:
        JobError: naming the setting.
    """
    goal = goal_of(spec, dataset)
    _check_training(_trained(spec, {}), dataset)
    for dimension in spec.dimensions:
        for value in dimension.ends:
            try:
                _check_training(_trained(spec, {dimension.name: value}), dataset)
            except SettingError as error:
                raise SettingError(
                    "space",
                    spec.space,
                    f"with {dimension.name} {value!r} setting {error.name!r} is refused: "
                    f"{error.problem}",
                    error.fix,
                ) from error
    return goal


def _trained(spec: Tune, values: dict[str, Any]) -> Training:
    """A training with these values, beside the first that is tried of the other settings.

    Their defaults may not suit the dataset; they are taken only where the first ones do not go
    with these values.
    """
    first = {dimension.name: dimension.ends[0] for dimension in spec.dimensions}
    try:
        return spec.trial(spec.run_dir, {**first, **values})
    except SettingError:
        return spec.trial(spec.run_dir, values)


def _check_training(training: Training, dataset: Dataset) -> None:
    if isinstance(training, TrainHorovod):
        import train_horovod

        train_horovod.check(training, dataset)
        return
    from trainyard.xgboost import params

    dataset.check_files("train", "validation")
    params.check(training, dataset)


def search(spec: Tune, dataset: Dataset, goal: Goal, run: Run, study: Study) -> None:
    """Run the trials in a Spark session of its own."""
    imports = ENGINES[spec.engine].imports
    with spark_session(f"{spec.job} {spec.engine}", imports, run.events) as spark:
        Sweep(spark.sparkContext, spec, dataset, goal, run, study).run()


def best_of(study: Study) -> FrozenTrial:
    """The best trial.

    Raises:
        JobError: none is complete.
    """
    if study.best is not None:
        return study.best
    failed = [t for t in study.trials if t.state == TrialState.FAIL]
    if not failed:
        raise JobError(
            "the time budget was over before a trial was complete.", "Raise time_budget."
        )
    causes = [str(trial.user_attrs["cause"]) for trial in failed]
    most = max(causes, key=causes.count)
    fix = next(t.user_attrs.get("fix") for t in failed if t.user_attrs["cause"] == most)
    raise JobError(
        f"none of {len(study.trials)} trials is complete; {len(failed)} failed, "
        f"{causes.count(most)} of them with: {most}",
        f"{fix or 'Narrow the space to what can be trained with.'} {TRIALS_REPORT} in the report "
        "says of each why it failed.",
    )


def described(study: Study, trial: FrozenTrial) -> dict[str, Any]:
    """A trial as plain JSON."""
    attributes = ("seconds", "worker", "cause", "fix", "same_as")
    told = {name: trial.user_attrs[name] for name in attributes if name in trial.user_attrs}
    return {
        "trial": trial.number,
        "state": trial.state.name.lower(),
        "value": finite(trial.value),
        "params": study.values(trial),
        "reported": finite(trial.intermediate_values),
        **told,
    }


def report(spec: Tune, goal: Goal, study: Study, run: Run) -> dict[str, bytes]:
    """Write what is known of the trials, and pictures of them; return the files by name."""
    ended = [t for t in study.trials if t.state.is_finished()]
    complete = [t for t in ended if t.state == TrialState.COMPLETE]
    found = plots.importances(study.inner)
    title = f"{len(ended)} trials of {spec.engine}"
    trials = [described(study, trial) for trial in ended]
    files = {
        TRIALS_REPORT: store.to_json(
            {
                "metric": goal.metric,
                "grows": goal.grows,
                "importances": found,
                "trials": trials,
            }
        ),
        "history.png": plots.history(ended, goal, title),
    }
    if complete:
        files["parallel_coordinates.png"] = plots.parallel_coordinates(
            complete, spec.dimensions, goal, f"{title}: the {len(complete)} complete ones"
        )
    if found:
        files["importances.png"] = plots.importance_bars(
            found, f"What {goal.metric} depends on in {len(complete)} complete trials"
        )
    for name, data in files.items():
        store.write_bytes(join(run.directory, REPORT, name), data)
    return files


@contextmanager
def recorded(spec: Tune, goal: Goal, study: Study, dataset: Dataset) -> Iterator[Record]:
    """Record trials in MLflow, beside the search, as they end."""
    record = Record(spec, goal, study, dataset.fingerprint)
    try:
        with Repeating(record.update, every=_RECORD_SECONDS, name="record"):
            yield record
    except Exception:
        record.fail()
        raise


def work(spec: Tune, run: Run) -> dict[str, Any]:
    """The job: read, check, search, report, record."""
    dataset = Dataset.read(spec.dataset)
    goal = check(spec, dataset)
    with open_study(spec, goal, dataset.fingerprint) as study:
        with recorded(spec, goal, study, dataset) as record:
            search(spec, dataset, goal, run, study)
            files = report(spec, goal, study, run)
            best = best_of(study)
        run.events.note("recording the search in MLflow")
        record.finish({f"best_{goal.metric}": float(best.value or 0.0)}, files)
        states = [trial.state for trial in study.trials]
        return {
            "outputs": {"report": join(run.directory, REPORT)},
            "best": {
                "trial": best.number,
                "engine": spec.engine,
                "metric": goal.metric,
                "value": best.value,
                "params": study.values(best),
                "settings": spec.chosen(study.values(best)),
            },
            "trials": {
                state.name.lower(): states.count(state)
                for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
            },
            "metrics": {f"best_{goal.metric}": best.value, "trials": len(states)},
            "mlflow_run_id": record.run.info.run_id,
            "rows": {split: dataset.rows(split) for split in ("train", "validation")},
            "fingerprints": {"dataset": dataset.fingerprint},
        }


if __name__ == "__main__":
    sys.exit(run_job(Tune, work))
