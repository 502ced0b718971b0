"""Promotion against a real registry: which version serves afterwards, and what is said about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException
from trainyard_airflow.operators.promote import PromoteModelOperator

from trainyard import registry

MakeContext = Callable[..., Any]
NAME = "digits"


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Register one more version of the model."""
    monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    client = registry.client()
    client.create_registered_model(NAME)

    def add() -> str:
        made = client.create_model_version(NAME, source=f"file://{tmp_path}/model")
        return str(made.version)

    return add


def evaluation(
    version: str, accuracy: float | None, champion: tuple[str, float | None] | None = None
) -> dict[str, Any]:
    def metrics(value: float | None) -> dict[str, Any]:
        return {"accuracy": {"value": value, "low": None, "high": None}}

    judged = None
    if champion is not None:
        judged = {"name": NAME, "version": champion[0], "metrics": metrics(champion[1])}
    model = {"name": NAME, "version": version, "uri": f"models:/{NAME}/{version}"}
    return {
        "model": model,
        "metrics": metrics(accuracy),
        "champion": judged,
        "rows": {"test": 1000},
    }


def promote(judged: Mapping[str, Any], **arguments: Any) -> PromoteModelOperator:
    rules = {"minimums": {"accuracy": "0.9"}, "margins": {"accuracy": 0}}
    return PromoteModelOperator(task_id="promote", evaluation=judged, **{**rules, **arguments})


def champion() -> str | None:
    found = registry.find_alias(NAME, registry.CHAMPION)
    return found.version if found else None


def test_the_first_good_model_serves(versions: Callable[[], str], context: MakeContext) -> None:
    served = Asset("served")
    told = context()
    decision = promote(evaluation(versions(), 0.95), outlets=[served]).execute(told)
    assert champion() == "1"
    assert decision["promoted"] is True
    assert decision["champion"] == {"name": NAME, "version": "1", "uri": f"models:/{NAME}/1"}
    assert "version 1 serves" in decision["summary"]
    assert told["outlet_events"][served].extra["champion"] == f"models:/{NAME}/1"
    assert json.loads(json.dumps(decision)) == decision


@pytest.mark.parametrize("accuracy", [0.5, float("nan"), None])
def test_without_a_champion_a_bad_model_fails_the_task(
    versions: Callable[[], str], context: MakeContext, accuracy: float | None
) -> None:
    with pytest.raises(AirflowFailException, match="no champion, and version 1 was rejected"):
        promote(evaluation(versions(), accuracy)).execute(context())
    assert champion() is None


@pytest.mark.parametrize(
    ("accuracy", "serves"),
    [(0.96, "2"), (0.95, "1"), (0.94, "1"), (0.5, "1"), (float("nan"), "1")],
    ids=["better", "tie", "worse", "below the minimum", "no number"],
)
def test_the_better_model_serves_and_a_rejection_fails_nothing(
    versions: Callable[[], str],
    context: MakeContext,
    capsys: pytest.CaptureFixture[str],
    accuracy: float,
    serves: str,
) -> None:
    registry.promote(NAME, versions())
    decision = promote(evaluation(versions(), accuracy, ("1", 0.95))).execute(context())
    assert champion() == serves
    assert decision["champion"]["version"] == serves
    assert decision["promoted"] is (serves == "2")
    log = capsys.readouterr().out
    assert decision["summary"] in log
    assert "accuracy against champion" in log


def test_a_champion_that_changed_meanwhile_stays(
    versions: Callable[[], str], context: MakeContext
) -> None:
    registry.promote(NAME, versions())
    challenger, other = versions(), versions()
    registry.promote(NAME, other)
    decision = promote(evaluation(challenger, 0.99, ("1", 0.95))).execute(context())
    assert champion() == other
    assert decision["promoted"] is False
    assert "the champion changed while" in decision["summary"]


def test_a_first_model_yields_to_one_that_was_promoted_meanwhile(
    versions: Callable[[], str], context: MakeContext
) -> None:
    other, challenger = versions(), versions()
    registry.promote(NAME, other)
    decision = promote(evaluation(challenger, 0.99)).execute(context())
    assert champion() == other
    assert "judged against no model" in decision["summary"]


def test_a_second_try_finds_its_own_promotion(
    versions: Callable[[], str], context: MakeContext
) -> None:
    registry.promote(NAME, versions())
    judged = evaluation(versions(), 0.97, ("1", 0.95))
    first = promote(judged).execute(context())
    assert promote(judged).execute(context()) == first


def test_a_dry_run_changes_nothing(versions: Callable[[], str], context: MakeContext) -> None:
    registry.promote(NAME, versions())
    judged = evaluation(versions(), 0.97, ("1", 0.95))
    decision = promote(judged, mode="dry_run").execute(context())
    assert champion() == "1"
    assert decision["promoted"] is False
    assert "version 2 would serve" in decision["summary"]


def test_a_dry_run_without_a_champion_says_that_nothing_serves(
    versions: Callable[[], str], context: MakeContext
) -> None:
    with pytest.raises(AirflowFailException, match="a dry run promotes none"):
        promote(evaluation(versions(), 0.97), mode="dry_run").execute(context())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "dryrun"}, "Did you mean 'dry_run'"),
        ({"minimums": {"accuracy": "high"}}, "minimum for 'accuracy' is 'high'"),
    ],
)
def test_a_gate_that_cannot_be_is_refused(
    versions: Callable[[], str], context: MakeContext, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        promote(evaluation(versions(), 0.97), **arguments).execute(context())
    assert champion() is None


def test_a_version_that_is_not_registered_is_refused(
    versions: Callable[[], str], context: MakeContext
) -> None:
    versions()
    with pytest.raises(AirflowFailException, match="no such version"):
        promote(evaluation("7", 0.97)).execute(context())
    assert champion() is None
