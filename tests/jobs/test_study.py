"""The study of a search: what it goes on with, gives up, repeats, and keeps apart."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from trainyard import store
from trainyard.claims import Claim
from trainyard.errors import JobError, TransientError
from trainyard.specs import Tune
from trainyard.tuning.engines import Goal
from trainyard.tuning.outcomes import Outcome
from trainyard.tuning.studies import STUDIES, open_study
from trainyard.tuning.study import Begun, Study
from tune import best_of

LESS = Goal(metric="validation_loss", grows=False)
MORE = Goal(metric="validation_accuracy", grows=True)


def spec_of(run_dir: Path | str, **settings: Any) -> Tune:
    given = {"run_dir": str(run_dir), "dataset": "/d", "trials": 6, "startup_trials": 3}
    return Tune.from_mapping({**given, **settings})


def value_of(begun: Begun) -> float:
    """Best where the learning rate is 0.05."""
    return abs(float(begun.values["learning_rate"]) - 0.05)


def run(study: Study, most: int = 1000) -> list[Begun]:
    """Run trials to their end, one after the other."""
    found: list[Begun] = []
    while len(found) < most and (begun := study.begin()) is not None:
        study.finish(begun.number, Outcome(value=value_of(begun)))
        found.append(begun)
    return found


def searched(spec: Tune, most: int = 1000) -> list[Begun]:
    with open_study(spec, LESS, "f") as study:
        return run(study, most)


@pytest.fixture
def dying() -> Iterator[ExitStack]:
    """Studies whose drivers die at the end of the test: nothing of them is closed before."""
    with ExitStack() as stack:
        yield stack


def test_a_search_finds_what_is_good_and_stops_at_its_budget(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, trials=12)
    with open_study(spec, LESS, "f") as study:
        assert len(run(study)) == 12
        best = study.best
    assert best is not None
    assert best.value is not None
    assert best.value < 0.03


def test_a_killed_search_goes_on_and_repeats_nothing(tmp_path: Path, dying: ExitStack) -> None:
    spec = spec_of(tmp_path / "killed")
    whole = searched(spec_of(tmp_path / "whole"))
    study = dying.enter_context(open_study(spec, LESS, "f"))
    done = run(study, 2)
    running = [study.begin(), study.begin()]
    assert None not in running
    # Its driver is killed here; the next one finds what was stored.
    with open_study(spec, LESS, "f") as again:
        rest = run(again)
        trials = again.trials
    assert rest[:2] == running, "those that ran go on, with their numbers and values"
    assert [begun.number for begun in done + rest] == list(range(6))
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 6
    assert (done + rest)[:3] == whole[:3], "what a number tries at random does not change"
    assert len({str(begun.values) for begun in done + rest}) == 6
    with open_study(spec, LESS, "f") as over:
        assert over.begin() is None


def test_an_end_is_stored_at_once(tmp_path: Path, dying: ExitStack) -> None:
    spec = spec_of(tmp_path)
    run(dying.enter_context(open_study(spec, LESS, "f")), 1)
    assert [begun.number for begun in searched(spec, 1)] == [1]


def test_a_trial_that_kills_its_driver_is_given_up(tmp_path: Path, dying: ExitStack) -> None:
    spec = spec_of(tmp_path, trials=2)
    for _ in range(3):
        begun = dying.enter_context(open_study(spec, LESS, "f")).begin()
        assert begun is not None
        assert begun.number == 0
    with open_study(spec, LESS, "f") as study:
        assert [begun.number for begun in run(study)] == [1]
        assert study.trials[0].state.name == "FAIL"
        assert "driver died 3 times" in study.trials[0].user_attrs["cause"]


@pytest.mark.parametrize(("goal", "bad", "good"), [(LESS, 9.0, 0.1), (MORE, 0.1, 0.9)])
def test_a_trial_that_does_worse_than_others_is_given_up(
    tmp_path: Path, goal: Goal, bad: float, good: float
) -> None:
    spec = spec_of(tmp_path, metric=goal.metric, prune_after_trials=2, prune_after_steps=1)
    with open_study(spec, goal, "f") as study:
        for _ in range(2):
            begun = study.begin()
            assert begun is not None
            assert [study.report(begun.number, step, 0.5) for step in (1, 2)] == [False, False]
            study.finish(begun.number, Outcome(value=0.5))
        better, worse = study.begin(), study.begin()
        assert better is not None
        assert worse is not None
        assert study.report(better.number, 2, good) is False
        assert study.report(worse.number, 2, None) is False, "a value that is none judges nobody"
        assert study.report(worse.number, 2, bad) is True
        ended = study.finish(worse.number, Outcome())
        assert ended.state.name == "PRUNED"
        assert study.report(worse.number, 3, good) is True, "a task that Spark had lost"
    with open_study(spec_of(tmp_path / "none", pruner="none"), LESS, "f") as study:
        for value in (0.5, 0.5, 0.5, 9.0):
            begun = study.begin()
            assert begun is not None
            assert study.report(begun.number, 5, value) is False
            study.finish(begun.number, Outcome(value=value))


def test_a_failed_trial_is_recorded_and_ends_nothing(tmp_path: Path) -> None:
    with open_study(spec_of(tmp_path), LESS, "f") as study:
        begun = study.begin()
        assert begun is not None
        cause = "the loss became inf." + "!" * 100_000
        failed = Outcome(cause=cause, fix="Lower it.", worker="h process 1")
        study.finish(begun.number, failed)
        assert len(run(study)) == 5
        trial = study.trials[0]
        assert trial.state.name == "FAIL"
        assert trial.user_attrs["cause"].startswith("the loss became inf.!")
        assert len(trial.user_attrs["cause"]) == 2000, "MLflow's database takes no more than 8,000"
        assert trial.user_attrs["worker"] == "h process 1"
        assert best_of(study).number > 0


def test_all_failed_is_an_error_that_says_why(tmp_path: Path) -> None:
    with open_study(spec_of(tmp_path, trials=3), LESS, "f") as study:
        for cause, fix in (("odd.", "?"), ("too large.", "Lower it."), ("too large.", "Lower it.")):
            begun = study.begin()
            assert begun is not None
            study.finish(begun.number, Outcome(cause=cause, fix=fix))
        with pytest.raises(JobError) as caught:
            best_of(study)
    assert "none of 3 trials is complete; 3 failed, 2 of them with: too large." in str(caught.value)
    assert caught.value.fix.startswith("Lower it.")


SCHEDULES = ["constant", "cosine", "linear", "step"]


def outcomes(spec: Tune, ends: Mapping[str, Outcome]) -> list[FrozenTrial]:
    """The trials of a search for the best schedule, each of which ends so."""
    with open_study(spec, LESS, "f") as study:
        while (begun := study.begin()) is not None:
            study.finish(begun.number, ends[begun.values["schedule"]])
        return study.trials


def test_what_was_tried_is_not_trained_again(tmp_path: Path) -> None:
    space = {"schedule": {"choices": SCHEDULES}}
    spec = spec_of(tmp_path, space=space, trials=20, sampler="random", seed=9)
    odd = Outcome(cause="the loss became inf.", fix="Lower it.", permanent=True)
    ends = {name: Outcome(value=1.0 + at) for at, name in enumerate(SCHEDULES)} | {"step": odd}
    trials = outcomes(spec, ends)
    trained = [trial for trial in trials if "same_as" not in trial.user_attrs]
    assert sorted(trial.params["schedule"] for trial in trained) == SCHEDULES
    assert len(trained) < len(trials) < 20, "when all have been tried, it ends"
    for trial in trials:
        assert trial.value == ends[trial.params["schedule"]].value
        assert trial.user_attrs.get("cause") == ends[trial.params["schedule"]].cause
    copied = {t.params["schedule"] for t in trials if "same_as" in t.user_attrs}
    assert copied == {"cosine", "linear", "step"}, "a seed that draws these again"


def test_what_was_lost_or_has_another_seed_is_trained_again(tmp_path: Path) -> None:
    shared = {"space": {"schedule": {"choices": ["step"]}}, "trials": 3, "study": str(tmp_path)}
    lost = {"step": Outcome(cause="its task was lost: exit 137")}
    assert len(outcomes(spec_of(tmp_path / "1", **shared), lost)) == 3
    done = {"step": Outcome(value=1.0)}
    assert len(outcomes(spec_of(tmp_path / "2", **shared), done)) == 4
    assert len(outcomes(spec_of(tmp_path / "3", **shared), done)) == 4
    found = outcomes(spec_of(tmp_path / "4", seed=1, **shared), done)
    assert len(found) == 5
    assert not [trial for trial in found if "same_as" in trial.user_attrs]


@pytest.mark.parametrize(
    ("changed", "goal", "name"),
    [
        ({"space": {"learning_rate": {"low": 0.01, "high": 0.2}}}, LESS, "space"),
        ({"fixed": {"epochs": 9}}, LESS, "fixed"),
        ({"metric": "validation_accuracy"}, MORE, "metric"),
    ],
)
def test_a_study_of_another_search_is_refused(
    tmp_path: Path, changed: dict[str, Any], goal: Goal, name: str
) -> None:
    shared = {"study": str(tmp_path / "study")}
    searched(spec_of(tmp_path / "1", **shared), 1)
    with (
        pytest.raises(JobError, match=f"was made with {name} .*cannot be compared") as caught,
        open_study(spec_of(tmp_path / "2", **shared, **changed), goal, "f"),
    ):
        pass
    assert caught.value.permanent
    with (
        pytest.raises(JobError, match="was made with dataset 'f'"),
        open_study(spec_of(tmp_path / "3", **shared), LESS, "other rows"),
    ):
        pass


def test_a_later_run_goes_on_with_a_study(tmp_path: Path) -> None:
    shared = {"study": str(tmp_path / "study")}
    first = searched(spec_of(tmp_path / "1", **shared, trials=3))
    second = searched(spec_of(tmp_path / "2", **shared, trials=4))
    assert [begun.number for begun in first + second] == list(range(7))
    with open_study(spec_of(tmp_path / "2", **shared), LESS, "f") as study:
        assert len(study.trials) == 7
        assert len(study.own) == 4


def test_two_searches_at_once(tmp_path: Path, dying: ExitStack) -> None:
    shared = {"study": str(tmp_path / "study")}
    held = dying.enter_context(open_study(spec_of(tmp_path / "1", **shared), LESS, "f"))
    assert held.begin() is not None
    with (
        pytest.raises(TransientError, match=r"study.* is claimed by a live driver"),
        open_study(spec_of(tmp_path / "2", **shared), LESS, "f"),
    ):
        pass
    # In directories of their own they share nothing, though one database may hold both.
    assert len(searched(spec_of(tmp_path / "3"))) == 6


def test_one_database_keeps_studies_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STUDIES, f"sqlite:///{tmp_path}/all.db")
    with (
        open_study(spec_of(tmp_path / "1", trials=2), LESS, "f") as one,
        open_study(spec_of(tmp_path / "2", trials=3, seed=1), LESS, "f") as two,
    ):
        assert [len(run(one)), len(run(two))] == [2, 3]
        assert [len(one.trials), len(two.trials)] == [2, 3]
    assert store.list_names(str(tmp_path / "1")) == []
    assert searched(spec_of(tmp_path / "1", trials=2)) == []


def test_a_database_that_does_not_answer_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STUDIES, "postgresql://user:s3cret@127.0.0.1:1/studies")
    with (
        pytest.raises(TransientError, match="database of studies answers") as caught,
        open_study(spec_of(tmp_path), LESS, "f"),
    ):
        pass
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("no address, s3cret", "cannot be read"),
        ("postgresql://user:s3cret@host:s3cret/studies", "cannot be read"),
        ("postgres://user:s3cret@host/studies", "cannot be read"),
        ("postgresql://user:p@s3cret@127.0.0.1:1/studies", "an @ more"),
        ("mysql://user:s3cret@host/studies", "no driver for mysql"),
    ],
)
def test_an_address_that_names_no_database_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    monkeypatch.setenv(STUDIES, url)
    with (
        pytest.raises(JobError, match=f"{STUDIES} is no address.*{message}") as caught,
        open_study(spec_of(tmp_path), LESS, "f"),
    ):
        pass
    assert caught.value.permanent
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_a_database_of_another_version_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(spec_of(tmp_path), 1)
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9.9.9'")
        connection.commit()
    monkeypatch.setenv(STUDIES, f"sqlite:///{tmp_path}/study.db")
    with (
        pytest.raises(JobError, match="is another version's"),
        open_study(spec_of(tmp_path), LESS, "f"),
    ):
        pass


def test_a_study_lies_in_an_object_store(tmp_path: Path) -> None:
    place = f"memory://studies/{tmp_path.name}"
    with open_study(spec_of(place, trials=3), LESS, "f") as study:
        run(study, 2)
    assert store.list_names(place) == ["study.db"]
    assert [begun.number for begun in searched(spec_of(place, trials=3))] == [2]


@pytest.mark.parametrize("data", [b"no database " * 100, b""])
def test_a_damaged_study_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "study.db").write_bytes(data)
    with (
        pytest.raises(JobError, match=r"study.db' is no study .*remove it to begin anew"),
        open_study(spec_of(tmp_path), LESS, "f"),
    ):
        pass
    assert (tmp_path / "study.db").read_bytes() == data


def test_a_study_with_damaged_rows_is_an_error(tmp_path: Path) -> None:
    searched(spec_of(tmp_path), 1)
    whole = (tmp_path / "study.db").read_bytes()
    third = len(whole) // 3
    (tmp_path / "study.db").write_bytes(whole[:third] + b"U" * third + whole[2 * third :])
    with pytest.raises(JobError, match=r"study.db' is no study") as caught:
        searched(spec_of(tmp_path), 1)
    assert caught.value.permanent


def test_no_trial_begins_after_the_time_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dying: ExitStack
) -> None:
    now = 1000.0
    monkeypatch.setattr("trainyard.tuning.study.time.monotonic", lambda: now)
    spec = spec_of(tmp_path, time_budget=60)
    study = dying.enter_context(open_study(spec, LESS, "f"))
    run(study, 2)
    now = 1040.0
    running = study.begin()
    # Its driver is killed here: what ran comes to its end, and its seconds count.
    with open_study(spec, LESS, "f") as again:
        now = 1062.0
        assert again.begin() == running is not None
        again.finish(running.number, Outcome(value=1.0))
        assert again.begin() is None
        assert again.over == "the time budget is over"
        assert len(again.trials) == 3


def test_a_claim_on_a_shared_study_ends_with_the_search(tmp_path: Path) -> None:
    searched(spec_of(tmp_path / "1", study=str(tmp_path / "study")), 1)
    Claim.take(str(tmp_path / "study")).release()


def test_what_fails_beside_a_study_is_not_blamed_on_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="of Spark"), open_study(spec_of(tmp_path), LESS, "f"):
        raise RuntimeError("an error of Spark")
