"""Promotion against a real registry: which version serves afterwards, and what is said about it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard import champions, registry
from trainyard_airflow.operators.promote import PromoteModelOperator
from trainyard_airflow.operators.rollback import RollbackModelOperator
from trainyard_airflow.pools import PROMOTION_POOL

MakeContext = Callable[..., Any]


class Versions:
    """The versions of one registered model; calling it adds one."""

    def __init__(self, name: str) -> None:
        self.name = name
        registry.client().create_registered_model(name)

    def __call__(self) -> str:
        made = registry.client().create_model_version(self.name, source="file:///nowhere")
        return str(made.version)

    def promote(self, version: str) -> None:
        now = champions.serving(self.name)
        champions.promote(
            self.name, version, known=now.version if now else None, who="a test", why="it says so"
        )

    def tags(self, version: str) -> dict[str, str]:
        return dict(registry.client().get_model_version(self.name, version).tags)

    def champion(self) -> str | None:
        found = registry.find_alias(self.name, registry.CHAMPION)
        return found.version if found else None

    def evaluation(
        self, version: str, accuracy: float | None, champion: tuple[str, float | None] | None = None
    ) -> dict[str, Any]:
        """The result of an evaluate job."""
        judged = None
        if champion is not None:
            judged = {"name": self.name, "version": champion[0], "metrics": metrics(champion[1])}
        return {
            "model": model(self.name, version),
            "metrics": metrics(accuracy),
            "champion": judged,
            "rows": {"test": 1000},
        }


def model(name: str, version: str) -> dict[str, str]:
    return {"name": name, "version": version, "uri": f"models:/{name}/{version}"}


def metrics(accuracy: float | None) -> dict[str, Any]:
    return {"accuracy": {"value": accuracy, "low": None, "high": None}}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A registry's database: making one takes seconds, so that the tests share it."""
    return f"sqlite:///{tmp_path_factory.mktemp('registry')}/mlflow.db"


@pytest.fixture
def versions(
    database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Versions:
    """A registered model of the test's own."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    return Versions(re.sub(r"\W+", "-", request.node.name))


def promote(judged: Mapping[str, Any], **arguments: Any) -> PromoteModelOperator:
    rules = {"minimums": {"accuracy": "0.9"}, "margins": {"accuracy": 0}}
    return PromoteModelOperator(task_id="promote", evaluation=judged, **{**rules, **arguments})


def test_a_bound_of_none_is_no_rule(versions: Versions, context: MakeContext) -> None:
    rules: dict[str, Any] = {"minimums": {"roc_auc": "None", "accuracy": "0.9"}}
    judged = versions.evaluation(versions(), 0.95)
    decision = promote(judged, **rules, margins={"rmse": None}).execute(context())
    assert [rule["name"] for rule in decision["verdict"]] == ["accuracy"]


def test_the_first_good_model_serves(versions: Versions, context: MakeContext) -> None:
    served = Asset("served")
    told = context()
    decision = promote(versions.evaluation(versions(), 0.95), outlets=[served]).execute(told)
    assert versions.champion() == "1"
    assert decision["promoted"] is True
    assert decision["champion"] == {
        "name": versions.name,
        "version": "1",
        "uri": f"models:/{versions.name}/1",
    }
    assert "version 1 serves" in decision["summary"]
    assert told["outlet_events"][served].extra["champion"] == f"models:/{versions.name}/1"
    assert json.loads(json.dumps(decision)) == decision


@pytest.mark.parametrize("accuracy", [0.5, float("nan"), None])
def test_without_a_champion_a_bad_model_fails_the_task(
    versions: Versions, context: MakeContext, accuracy: float | None
) -> None:
    with pytest.raises(AirflowFailException, match="no champion, and version 1 was rejected"):
        promote(versions.evaluation(versions(), accuracy)).execute(context())
    assert versions.champion() is None


@pytest.mark.parametrize(
    ("accuracy", "serves"),
    [(0.96, "2"), (0.95, "1"), (0.94, "1"), (0.5, "1"), (float("nan"), "1")],
    ids=["better", "tie", "worse", "below the minimum", "no number"],
)
def test_the_better_model_serves_and_a_rejection_fails_nothing(
    versions: Versions,
    context: MakeContext,
    capsys: pytest.CaptureFixture[str],
    accuracy: float,
    serves: str,
) -> None:
    versions.promote(versions())
    decision = promote(versions.evaluation(versions(), accuracy, ("1", 0.95))).execute(context())
    assert versions.champion() == serves
    assert decision["champion"]["version"] == serves
    assert decision["promoted"] is (serves == "2")
    log = capsys.readouterr().out
    assert decision["summary"] in log
    assert "accuracy against champion" in log


def test_a_champion_that_changed_meanwhile_stays(versions: Versions, context: MakeContext) -> None:
    versions.promote(versions())
    challenger, other = versions(), versions()
    versions.promote(other)
    decision = promote(versions.evaluation(challenger, 0.99, ("1", 0.95))).execute(context())
    assert versions.champion() == other
    assert decision["promoted"] is False
    assert "the champion changed while" in decision["summary"]


def test_a_first_model_yields_to_one_that_was_promoted_meanwhile(
    versions: Versions, context: MakeContext
) -> None:
    other, challenger = versions(), versions()
    versions.promote(other)
    decision = promote(versions.evaluation(challenger, 0.99)).execute(context())
    assert versions.champion() == other
    assert "judged against no model" in decision["summary"]


def test_a_second_try_finds_its_own_promotion(versions: Versions, context: MakeContext) -> None:
    versions.promote(versions())
    judged = versions.evaluation(versions(), 0.97, ("1", 0.95))
    first = promote(judged).execute(context())
    assert promote(judged).execute(context()) == first


def test_a_dry_run_changes_nothing(versions: Versions, context: MakeContext) -> None:
    versions.promote(versions())
    judged = versions.evaluation(versions(), 0.97, ("1", 0.95))
    decision = promote(judged, mode="dry_run").execute(context())
    assert versions.champion() == "1"
    assert decision["promoted"] is False
    assert "version 2 would serve" in decision["summary"]


def test_a_dry_run_without_a_champion_says_that_nothing_serves(
    versions: Versions, context: MakeContext
) -> None:
    with pytest.raises(AirflowFailException, match="a dry run promotes none"):
        promote(versions.evaluation(versions(), 0.97), mode="dry_run").execute(context())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "dryrun"}, "Did you mean 'dry_run'"),
        ({"margins": {"accuracy": -0.1}}, "margin for 'accuracy' is -0.1"),
        ({"minimums": {"accuracy": "high"}}, "minimum for 'accuracy' is 'high'"),
        ({"minimums": {"log_loss": 0.5}}, "minimum for 'log_loss', of which less is better"),
        ({"slices": {"shop": {"accuracy": "x"}}}, "shop bound for 'accuracy' is 'x'"),
        ({"slices": {"shop": {"accuracy": 0.5}}}, "bounds by 'shop', by which nothing was"),
        ({"slice_rows": "few"}, "slice_rows is 'few'"),
        ({"slice_rows": "inf"}, "slice_rows is 'inf'"),
        ({"slice_rows": 0}, "slice_rows is 0"),
        ({"minimums": "accuracy"}, "minimum is 'accuracy': it is no mapping"),
        ({"minimums": {"accuracy": True}}, "minimum for 'accuracy' is True"),
        ({"slices": {"shop": 0.5}}, "shop bound is 0.5: it is no mapping"),
        ({"paired": "perhaps"}, "paired is 'perhaps'"),
    ],
)
def test_a_gate_that_cannot_be_is_refused(
    versions: Versions, context: MakeContext, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        promote(versions.evaluation(versions(), 0.97), **arguments).execute(context())
    assert versions.champion() is None


def test_a_version_that_is_not_registered_is_refused(
    versions: Versions, context: MakeContext
) -> None:
    versions()
    with pytest.raises(AirflowException, match="no such version"):
        promote(versions.evaluation("7", 0.97)).execute(context())
    assert versions.champion() is None


def test_a_registry_that_does_not_answer_is_asked_again_by_a_retry(
    versions: Versions, context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = versions.evaluation(versions(), 0.97)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(AirflowException, match="the model registry answers") as raised:
        promote(judged).execute(context())
    assert not isinstance(raised.value, AirflowFailException)


def test_the_verdict_is_kept_with_the_report_the_run_and_the_version(
    versions: Versions, context: MakeContext, tmp_path: Path
) -> None:
    client = registry.client()
    experiment = client.create_experiment(versions.name, str(tmp_path / "artifacts"))
    run_id = client.create_run(experiment).info.run_id
    made = client.create_model_version(versions.name, "file:///nowhere", run_id)
    judged = versions.evaluation(str(made.version), 0.95)
    judged["outputs"] = {"report": str(tmp_path / "report")}
    decision = promote(judged).execute(context())
    assert json.loads((tmp_path / "report" / "verdict.json").read_text()) == decision
    assert versions.tags(made.version)[champions.METRIC_TAG] == decision["metric"] == "accuracy"
    artifact = client.download_artifacts(run_id, "report/verdict.json", str(tmp_path))
    assert json.loads(Path(artifact).read_text()) == decision
    tags = versions.tags("1")
    assert tags[champions.VERDICT_TAG] == decision["summary"]
    assert tags["trainyard.promoted_by"] == "a_dag a_run"


def test_a_rejection_is_recorded_too(
    versions: Versions, context: MakeContext, tmp_path: Path
) -> None:
    judged = versions.evaluation(versions(), 0.5)
    judged["outputs"] = {"report": str(tmp_path / "report")}
    with pytest.raises(AirflowFailException):
        promote(judged).execute(context())
    kept = json.loads((tmp_path / "report" / "verdict.json").read_text())
    assert (kept["promoted"], kept["champion"]) == (False, None)
    assert "is not >= 0.9" in versions.tags("1")[champions.VERDICT_TAG]


def test_a_paired_margin_and_slices_come_from_templates(
    versions: Versions, context: MakeContext
) -> None:
    versions.promote(versions())
    judged = versions.evaluation(versions(), 0.97, ("1", 0.95))
    judged["differences"] = {"accuracy": {"value": 0.02, "low": -0.001, "high": 0.04}}
    judged["slices"] = {"shop": {"north": {"rows": 90, "metrics": {"accuracy": 0.9}}}}
    decision = promote(judged, paired="True", slices={"shop": {"accuracy": "0.85"}}).execute(
        context()
    )
    assert decision["promoted"] is False
    assert {rule["name"]: rule["passed"] for rule in decision["verdict"]} == {
        "accuracy": True,
        "accuracy surely against champion": False,
        "accuracy where shop is north": True,
    }


def test_promotions_have_a_pool_of_their_own(versions: Versions) -> None:
    assert promote(versions.evaluation("1", 0.9)).pool == PROMOTION_POOL


class TestRollback:
    """The same operation on a person's word."""

    def roll_back(self, versions: Versions, **arguments: Any) -> RollbackModelOperator:
        given = {"model_name": versions.name, "who": "Ada", "why": "it drifts", **arguments}
        return RollbackModelOperator(task_id="rollback", **given)

    def test_without_a_version_the_previous_champion_serves(
        self, versions: Versions, context: MakeContext
    ) -> None:
        for version in (versions(), versions(), versions()):
            versions.promote(version)
        served, told = Asset("served"), context()
        rolled = self.roll_back(versions, version="", outlets=[served]).execute(told)
        assert versions.champion() == "2"
        assert (rolled["champion"]["version"], rolled["before"]["version"]) == ("2", "3")
        tags = versions.tags("2")
        assert tags["trainyard.promoted_by"] == "Ada"
        assert tags["trainyard.promoted_why"] == "it drifts"
        assert tags["trainyard.promoted_at"].startswith("20")
        assert told["outlet_events"][served].extra == {
            "who": "Ada",
            "why": "it drifts",
            "champion": f"models:/{versions.name}/2",
            "before": f"models:/{versions.name}/3",
            "summary": f"{versions.name} version 2 serves instead of version 3, by Ada: it drifts",
        }
        # Rolled back once more, the rollback is undone.
        assert self.roll_back(versions).execute(context())["champion"]["version"] == "3"

    def test_a_named_version_serves(self, versions: Versions, context: MakeContext) -> None:
        for version in (versions(), versions(), versions()):
            versions.promote(version)
        self.roll_back(versions, version="1").execute(context())
        assert versions.champion() == "1"

    def test_a_second_try_finds_its_own(self, versions: Versions, context: MakeContext) -> None:
        for version in (versions(), versions()):
            versions.promote(version)
        self.roll_back(versions, version="1").execute(context())
        again = self.roll_back(versions, version="1").execute(context())
        assert versions.champion() == "1"
        assert "version 1 already serves" in again["summary"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"who": " "}, "param 'who' is empty"),
            ({"why": ""}, "param 'why' is empty"),
            ({"version": "99"}, "has no such version"),
            ({"model_name": "nobody"}, "no version of it serves"),
            ({}, "not recorded which version .* served before 1"),
        ],
    )
    def test_what_cannot_be_rolled_back(
        self, versions: Versions, context: MakeContext, arguments: dict[str, Any], message: str
    ) -> None:
        versions.promote(versions())
        with pytest.raises(AirflowFailException, match=message):
            self.roll_back(versions, **arguments).execute(context())
        assert versions.champion() == "1"
