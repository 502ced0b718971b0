"""A search on real Spark: its trials, what is kept of them, and what MLflow shows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from boosted import real_dataset
from job_runs import notes, run_in
from small_trainings import WIDTH, regression

import tune
from trainyard import registry, rundir, store
from trainyard.dataset import Dataset
from trainyard.errors import JobError, SettingError
from trainyard.layout import TRIALS_REPORT
from trainyard.local_copy import local_copy
from trainyard.pieces import PieceReader, pieces
from trainyard.specs import Tune
from trainyard.specs.tune import ENGINES
from trainyard.tracking import PARENT_TAG, RUN_DIR_TAG
from trainyard.tuning.engines import Goal, train
from trainyard.tuning.outcomes import Outcome, PrunedError
from trainyard.tuning.record import TRIAL
from trainyard.tuning.studies import open_study
from trainyard.tuning.study import Study
from trainyard.tuning.sweep import Sweep
from trainyard.tuning.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trainyard.barrier.calls import Line

NETWORK = {
    "network": "torch.nn:Linear",
    "network_params": {"in_features": WIDTH, "out_features": 1},
    "input_shape": [WIDTH],
    "epochs": 4,
    "batch_size": 32,
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture(autouse=True)
def _tracking(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.TRACKING_URI, database)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return regression(tmp_path_factory.mktemp("numbers"))


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return real_dataset(tmp_path_factory.mktemp("binary"), "binary")


def spec_of(run_dir: Path, dataset: Dataset, **settings: Any) -> Tune:
    return Tune.from_mapping({"run_dir": str(run_dir), "dataset": dataset.directory, **settings})


@pytest.fixture
def in_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the job use the tests' session."""

    def search(spec: Tune, dataset: Dataset, goal: Goal, run: Any, study: Study) -> None:
        Sweep(spark.sparkContext, spec, dataset, goal, run, study).run()

    monkeypatch.setattr(tune, "search", search)


@pytest.mark.usefixtures("in_session")
def test_trials_are_pruned_fail_and_are_all_recorded(tmp_path: Path, numbers: Dataset) -> None:
    """One after the other, so that who is judged by whom is sure."""
    spec = spec_of(
        tmp_path,
        numbers,
        fixed=NETWORK,
        space={"learning_rate": {"choices": [1e-6, 0.002, 0.005, 1e30]}},
        sampler="random",
        seed=8,
        trials=7,
        parallel=1,
        prune_after_trials=1,
        prune_after_steps=1,
    )
    run = run_in(tmp_path)
    result = tune.work(spec, run)
    written = store.read_json(str(tmp_path / "report" / TRIALS_REPORT))
    by_rate: dict[float, list[Mapping[str, Any]]] = {}
    for trial in written["trials"]:
        by_rate.setdefault(trial["params"]["learning_rate"], []).append(trial)
    assert set(by_rate) == {1e-6, 0.002, 0.005, 1e30}, "a seed that tries all"
    assert {t["state"] for t in by_rate[1e-6]} == {"pruned"}
    assert {t["state"] for t in by_rate[1e30]} == {"fail"}
    assert {t["state"] for t in by_rate[0.002] + by_rate[0.005]} == {"complete"}
    pruned, failed = by_rate[1e-6][0], by_rate[1e30][0]
    assert list(pruned["reported"]) == ["1"], "given up at once"
    assert "became" in failed["cause"]
    assert "learning_rate" in failed["fix"]
    assert any(f"trial {failed['trial']} failed" in note for note in notes(tmp_path))
    states = [trial["state"] for trial in written["trials"]]
    assert result["trials"] == {s: states.count(s) for s in ("complete", "pruned", "fail")}
    best = result["best"]
    assert best["settings"] == {**NETWORK, "learning_rate": 0.005}
    assert best["value"] == min(t["value"] for t in written["trials"] if t["state"] == "complete")
    assert not list(tmp_path.glob("trials/*/checkpoints/*")), "a trial that ended needs none"
    for name in ("history.png", "parallel_coordinates.png"):
        assert store.read_bytes(str(tmp_path / "report" / name)).startswith(b"\x89PNG")
    check_recorded(result, written["trials"])
    again = tune.work(spec, run_in(tmp_path, claim=2))
    assert again["best"] == best
    check_recorded(again, written["trials"])


def check_recorded(result: Mapping[str, Any], trials: list[Mapping[str, Any]]) -> None:
    """MLflow has the search's run, finished, and one below it for each trial."""
    client = registry.client()
    parent = client.get_run(result["mlflow_run_id"])
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["best_validation_loss"] == result["best"]["value"]
    files = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert {"history.png", "parallel_coordinates.png", TRIALS_REPORT} <= files
    found = client.search_runs(
        [parent.info.experiment_id], f"tags.`{PARENT_TAG}` = '{parent.info.run_id}'"
    )
    runs = {int(run.data.tags[TRIAL]): run for run in found}
    assert len(found) == len(runs) == len(trials)
    for trial in trials:
        run = runs[trial["trial"]]
        assert run.info.status == ("FAILED" if trial["state"] == "fail" else "FINISHED")
        assert run.data.params == {"learning_rate": str(trial["params"]["learning_rate"])}
        assert run.data.tags.get("trainyard.cause") == trial.get("cause")
        if trial["state"] == "complete" and "same_as" not in trial:
            curve = client.get_metric_history(run.info.run_id, "validation_loss")
            assert [point.step for point in curve] == [1, 2, 3, 4]


@pytest.mark.usefixtures("in_session")
def test_trials_run_side_by_side_and_read_the_dataset_once(
    tmp_path: Path, binary: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "data"
    shutil.copytree(binary.directory, copied)
    dataset = Dataset.read(str(copied))
    finish = Study.finish
    running: list[int] = []

    def finish_and_remove(study: Study, number: int, outcome: Outcome) -> Any:
        running.append(sum(not trial.state.is_finished() for trial in study.own))
        for split in ("train", "validation"):
            shutil.rmtree(copied / split, ignore_errors=True)
        return finish(study, number, outcome)

    monkeypatch.setattr(Study, "finish", finish_and_remove)
    spec = spec_of(
        tmp_path / "run",
        dataset,
        engine="xgboost",
        metric="validation_auc",
        direction="maximize",
        fixed={"rounds": 10},
        space={"max_depth": {}, "booster_params.colsample_bytree": {}},
        trials=6,
        parallel=2,
        pruner="none",
    )
    result = tune.work(spec, run_in(tmp_path / "run"))
    assert result["trials"] == {"complete": 6, "pruned": 0, "fail": 0}
    assert result["best"]["value"] > 0.95
    given = {"run_dir": "/r", "dataset": "/d", "model_name": "m", **result["best"]["settings"]}
    assert ENGINES["xgboost"].from_mapping(given).decisive()["metrics"] == ["auc"]
    written = store.read_json(str(tmp_path / "run" / "report" / TRIALS_REPORT))
    assert written["grows"]
    assert max(running) == 2
    assert len({trial["worker"] for trial in written["trials"]}) >= 2, "Spark may start another"
    assert set(written["importances"]) == {"max_depth", "booster_params.colsample_bytree"}
    assert "importances.png" in store.list_names(str(tmp_path / "run" / "report"))
    told = rundir.read_events(str(tmp_path / "run"), {})
    bests = [e["values"]["best_validation_auc"] for e in told if e["kind"] == "metric"]
    assert len(bests) == 6
    assert bests == sorted(bests)
    last = [event for event in told if event["kind"] == "progress"][-1]
    assert (last["done"], last["total"], last["unit"]) == (6, 6, "trial")


def test_more_side_by_side_than_spark_has_slots_is_refused(
    tmp_path: Path, numbers: Dataset, spark: SparkSession
) -> None:
    spec = spec_of(tmp_path, numbers, fixed=NETWORK, parallel=99)
    goal = tune.check(spec, numbers)
    with (
        open_study(spec, goal, numbers.fingerprint) as study,
        pytest.raises(SettingError, match=r"'parallel' is 99: Spark .* has . slots"),
    ):
        Sweep(spark.sparkContext, spec, numbers, goal, run_in(tmp_path), study).run()


def test_a_search_of_which_nothing_came_says_why_of_each(
    tmp_path: Path, numbers: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(spec: Tune, dataset: Dataset, goal: Goal, run: Any, study: Study) -> None:
        for cause in ("too large.", "lost.", "too large."):
            begun = study.begin()
            assert begun is not None
            study.finish(begun.number, Outcome(cause=cause, fix="Lower it."))

    monkeypatch.setattr(tune, "search", search)
    spec = spec_of(tmp_path, numbers, fixed=NETWORK, trials=3)
    with pytest.raises(JobError, match=r"none of 3 .*2 of them with: too large.*trials.json"):
        tune.work(spec, run_in(tmp_path))
    written = store.read_json(str(tmp_path / "report" / TRIALS_REPORT))
    assert [trial["cause"] for trial in written["trials"]] == ["too large.", "lost.", "too large."]
    assert "history.png" in store.list_names(str(tmp_path / "report"))
    client = registry.client()
    [experiment] = client.search_experiments(filter_string="name = 'trainyard'")
    runs = client.search_runs(
        [experiment.experiment_id], f"tags.`{RUN_DIR_TAG}` LIKE '{tmp_path}%'"
    )
    assert {run.info.status for run in runs} == {"FAILED"}
    assert len(runs) == 4


class Judge:
    """A driver that gives each trial up; remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def call(self, kind: str, number: int, told: Mapping[str, Any]) -> dict[str, bool]:
        self.told.append(told["step"])
        return {"prune": True}


def test_a_trial_is_not_given_up_after_its_last_step(tmp_path: Path, numbers: Dataset) -> None:
    training = spec_of(tmp_path, numbers, fixed=NETWORK).trial(str(tmp_path), {})
    judge = Judge()
    trial = Trial(
        number=0,
        training=training,
        dataset=numbers,
        metric="validation_loss",
        every=3,
        claim=1,
        line=cast("Line", judge),
    )
    for step in (1, 2, 4):
        trial.tell(step, {"validation_loss": 0.5})
    with pytest.raises(PrunedError):
        trial.tell(3, {"validation_loss": 0.5})
    assert judge.told == [4, 3]


def test_a_space_that_does_not_suit_the_dataset_is_refused(
    tmp_path: Path, numbers: Dataset, binary: Dataset
) -> None:
    fixed = {name: value for name, value in NETWORK.items() if name != "batch_size"}
    space: dict[str, Any] = {"batch_size": {"low": 16, "high": 512}}
    with pytest.raises(SettingError, match=r"with batch_size 512 .*has 200 rows") as caught:
        tune.check(spec_of(tmp_path, numbers, fixed=fixed, space=space), numbers)
    assert caught.value.name == "space"
    others = {name: value for name, value in NETWORK.items() if name != "network"}
    space = {"learning_rate": {}, "network": {"choices": ["torch.nn:Linear"]}}
    spec = spec_of(tmp_path, numbers, fixed=others, space=space)
    assert tune.check(spec, numbers).metric == "validation_loss", "no trial has the default network"
    for metric, dataset in (("validation_accuracy", numbers), ("validation_rmse", binary)):
        with pytest.raises(SettingError, match="the dataset is made for"):
            tune.check(spec_of(tmp_path, dataset, metric=metric), dataset)
    spec = spec_of(tmp_path, binary, engine="xgboost", metric="validation_rmsle")
    with pytest.raises(SettingError, match="does not measure a dataset with 2 classes"):
        tune.check(spec, binary)
    assert tune.check(spec_of(tmp_path, binary, engine="xgboost"), binary) == Goal(
        metric="validation_logloss", grows=False
    )


@pytest.mark.parametrize("engine", ["horovod", "xgboost"])
def test_a_training_tells_each_step_and_ends_where_it_is_told_to(
    tmp_path: Path, numbers: Dataset, engine: str
) -> None:
    fixed = {**NETWORK, "epochs": 6} if engine == "horovod" else {"rounds": 6}
    training = spec_of(tmp_path, numbers, engine=engine, fixed=fixed).trial(str(tmp_path), {})
    seen: list[int] = []

    def after(step: int, figures: Mapping[str, float | None]) -> None:
        seen.append(step)
        assert figures["validation_loss" if engine == "horovod" else "validation_rmse"]
        if step == 3:
            raise PrunedError

    with pytest.raises(PrunedError):
        train(training, numbers, claim=1, after=after)
    assert seen == [1, 2, 3]


def test_a_local_copy_has_the_same_rows_and_needs_the_files_once(tmp_path: Path) -> None:
    made = regression(tmp_path / "made", weights={"train": [1.5] * 200, "validation": [2.0] * 50})
    wanted = all_of(made)
    for _ in range(2):
        copy = local_copy(made, ("train", "validation"), tmp_path / "local")
        assert copy.fingerprint == made.fingerprint
        assert all_of(copy) == wanted
        shutil.rmtree(tmp_path / "made", ignore_errors=True)


def test_a_damaged_file_is_not_copied(tmp_path: Path) -> None:
    made = regression(tmp_path / "made")
    path = Path(made.paths("train")[0])
    path.write_bytes(path.read_bytes()[:-9])
    for _ in range(2):
        with pytest.raises(JobError, match="does not match"):
            local_copy(made, ("train",), tmp_path / "local")


def all_of(dataset: Dataset) -> list[Any]:
    """All rows of a dataset as a training reads them, in parts that cut row groups."""
    reader = PieceReader(dataset)
    found = []
    for split in ("train", "validation"):
        rows = dataset.rows(split)
        for first in range(0, rows, 37):
            part = reader.arrays(pieces(dataset, split, first, min(rows, first + 37)))
            assert part.weights is not None
            found.append([a.tolist() for a in (part.features, part.labels, part.weights)])
    return found
