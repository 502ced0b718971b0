"""Run directories that no job of today wrote: a page is shown, and says what it can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.plugins.pages import DAG, RUN, Site, write_evaluation, write_result, write_training

from trainyard import rundir, segments, store
from trainyard.layout import EVENTS, join
from trainyard_airflow.ui import events, reading, told

HERE = f"/runs/{DAG}/{quote(RUN, safe='')}"

DEEP = b'{"job": ' + b"[" * 200_000

ODD: dict[str, dict[str, bytes]] = {
    "a list": {"result.json": b"[1]", "failure.json": b"[2]", "report/metrics.json": b"[3]"},
    "half of it": {"result.json": b'{"job": "evalu', "failure.json": b'{"cause": "x'},
    "too deep": {"result.json": DEEP, "failure.json": DEEP, "report/trials.json": DEEP},
    "empty": {"result.json": b"", "failure.json": b"", "report/charts.json": b""},
    "no text": {
        "result.json": b"\xff\xfe",
        "report/importances.csv": b"feature,total_gain\n\xff,1",
    },
    "no job": {"result.json": b'{"metrics": {}}'},
    "other shapes": {
        "result.json": b'{"job": "evaluate", "metrics": 5, "settings": 3}',
        "failure.json": b'{"cause": 1, "fix": 2, "permanent": 3, "time": "now"}',
        "report/metrics.json": b'{"metrics": 5, "task": []}',
        "report/trials.json": b'{"trials": [1, {"params": 3, "value": "x"},'
        b' {"state": "complete", "value": 1' + b"0" * 400 + b"}]}",
        "report/importances.csv": b"feature,total_gain\nage,many,more\n",
    },
    "an early version's": {
        "result.json": b'{"job": "evaluate", "champion": {}}',
        "report/metrics.json": b"{}",
        "report/verdict.json": b'{"metric": ["accuracy"]}',
    },
    "no numbers": {
        "result.json": b'{"job": "evaluate", "metrics": {"accuracy": {"value": NaN}}}',
        "report/metrics.json": b'{"metrics": {"accuracy": {"value": Infinity}}}',
        "report/charts.json": b'{"rows": -Infinity}',
    },
    "half characters": {"result.json": b'{"job": "prepare", "task": "\\ud800"}'},
    "events of a foreign kind": {
        "events/README": b"x",
        "events/foreign.jsonl": b"{}",
        "events/x-000001.jsonl": b"{}",
        "events/0001-rank0-000001.jsonl": b'[1]\n{"time": 1}\n{"kind": "note", "time": []}\n\xff\n'
        b'{"time": 1, "kind": "metric", "step": 1e999, "values": {"loss": 1}}\n'
        b'{"time": 1, "kind": "metric", "step": 1, "values": {"loss": 1e999}}\n'
        b'{"time": NaN, "kind": "progress", "stage": "x", "done": NaN, "total": 1e999,'
        b' "unit": null, "figures": {"a": []}}\n'
        b'{"time": 1, "kind": "ranks", "step": "x", "rows_per_second": [], "memory": 3}\n'
        b'{"time": 1, "kind": "note", "text": "\\ud800"}\n',
    },
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def write_segment(run_dir: str, number: int, *lines: dict[str, Any] | str) -> None:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    name = segments.name("0001-rank0", number)
    store.write_bytes(join(run_dir, EVENTS, name), text.encode())


def metric(step: int, **values: float) -> dict[str, Any]:
    return {"time": float(step), "kind": "metric", "step": step, "values": values}


@pytest.mark.parametrize("state", ["running", "failed", "success"])
def test_a_run_is_shown_whatever_lies_in_its_directories(site: Site, state: str) -> None:
    site.add_run("running")
    for task, files in ODD.items():
        run_dir = site.add_task(task, state)
        for name, data in files.items():
            store.write_bytes(join(run_dir, name), data)
    assert len(site.get(HERE)["stages"]) == len(ODD)
    for task in ODD:
        for what in ("", "/curves", "/report"):
            site.get(f"{HERE}/tasks/{task}/-1{what}")


def test_what_is_no_number_is_none_in_the_answer(site: Site) -> None:
    site.add_run()
    run_dir = site.add_task("evaluate")
    write_evaluation(run_dir)
    result = rundir.read_result(run_dir) or {}
    result["metrics"]["accuracy"] = {"value": float("nan"), "low": 0.5, "high": float("inf")}
    store.write_bytes(join(run_dir, "result.json"), json.dumps(result).encode())
    value = site.get(HERE)["evaluation"]["value"]
    assert value == {"value": None, "low": 0.5, "high": None}


def test_a_broken_line_costs_no_other(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    write_segment(run_dir, 1, metric(1, loss=3.0), '{"time": 1, "kind": "me', metric(2, loss=2.0))
    here = f"{HERE}/tasks/train/-1/curves"
    first = site.get(here)
    assert first["curves"]["loss"] == [[1, 2], [3.0, 2.0]]
    assert first["is_damaged"]
    write_segment(run_dir, 2, metric(3, loss=1.0))
    assert site.get(f"{here}?cursor={first['cursor']}")["curves"]["loss"] == [[3], [1.0]]


def test_a_segment_that_cannot_be_read_now_is_read_later(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    write_segment(run_dir, 1, metric(1, loss=3.0))
    here = f"{HERE}/tasks/train/-1/curves"
    assert not site.get(here)["is_damaged"]
    away = Path(join(run_dir, EVENTS, segments.name("0001-rank0", 2)))
    away.mkdir()
    assert site.get(here)["is_damaged"]
    away.rmdir()
    write_segment(run_dir, 2, metric(2, loss=2.0))
    whole = site.get(here)
    assert whole["curves"]["loss"] == [[1, 2], [3.0, 2.0]]
    assert not whole["is_damaged"]


def test_events_are_held_a_few_at_a_time_and_all_are_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_BATCH", 3)
    most = 0

    def take(self: told.Told, found: list[Any]) -> None:
        nonlocal most
        most = max(most, len(found))
        take_all(self, found)

    take_all = told.Told.take
    monkeypatch.setattr(told.Told, "take", take)
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    for number in range(1, 9):
        write_segment(run_dir, number, *([metric(number, loss=1.0)] if number != 4 else []))
    assert site.get(f"{HERE}/tasks/train/-1/curves")["last"] == 8
    assert most == 3


def test_what_is_too_large_is_left_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_MOST_BYTES", 1000)
    monkeypatch.setattr(reading, "_MOST_BYTES", 1000)
    monkeypatch.setattr(told, "_MOST_VALUES", 1000)
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    lines = [metric(step, loss=1.0) for step in range(1, 101)]
    write_segment(run_dir, 1, *lines)
    write_segment(run_dir, 2, metric(1001, loss=1.0), metric(400, a=1.0, b=2.0))
    found = site.get(f"{HERE}/tasks/train/-1/curves")
    assert 5 < found["last"] < 50
    assert set(found["curves"]) == {"loss"}
    assert found["is_damaged"]
    store.write_json(join(run_dir, "result.json"), {"job": "train_horovod", "text": "x" * 1000})
    store.write_bytes(join(run_dir, "report", "large.png"), b"x" * 1001)
    assert site.get(HERE)["stages"][0]["result"] is None
    picture = f"/trainyard/api{HERE}/tasks/train/-1/pictures/large.png"
    assert site.browser().get(picture).status_code == 404


def test_texts_of_events_are_short_and_without_secrets(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    note = {"time": 1.0, "kind": "note", "text": "token=hunter2 " + "x" * 100_000}
    stages = [
        {"kind": "progress", "stage": f"s{n}", "time": 1.0, "done": 1, "total": 2}
        | {"unit": "u" * 100_000, "figures": {}}
        for n in range(100)
    ]
    write_segment(run_dir, 1, note, *stages)
    answer = site.browser().get(f"/trainyard/api{HERE}")
    assert "hunter2" not in answer.text
    assert "token=" in answer.text
    assert len(answer.text) < 100_000


def test_of_what_has_not_begun_nothing_is_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add_run("running")
    write_training(site.add_task("train", "running"), 3)
    for index in range(3):
        site.add_task("predict", None, map_index=index, attempt=0)
    asked: list[str] = []
    for name in ("list_names", "read_bytes"):
        ask = getattr(store, name)

        def noted(uri: str, *, ask: Any = ask, **given: Any) -> Any:
            asked.append(uri)
            return ask(uri, **given)

        monkeypatch.setattr(store, name, noted)
    assert len(site.get(HERE)["stages"]) == 4
    assert any("/train/" in uri for uri in asked)
    assert not any("/predict" in uri for uri in asked)


def test_a_cursor_that_is_none_asks_for_all(site: Site) -> None:
    site.add_run("running")
    write_training(site.add_task("train", "running"), 3)
    here = f"{HERE}/tasks/train/-1/curves"
    for cursor in ("x", "1.0.5.²", "...", "0.0.5.999999", "-1"):
        assert site.get(f"{here}?cursor={quote(cursor)}")["reset"]
    answer = site.browser().get(f"/trainyard/api{here}?cursor={'1' * 5000}")
    assert answer.status_code == 422


def test_a_search_shows_its_best_trials_first(site: Site) -> None:
    site.add_run()
    run_dir = site.add_task("tune")
    write_training(run_dir, 3)
    values: list[float | None] = [0.5, 0.9, None, 0.7]
    trials = [
        {"trial": n, "state": "fail" if v is None else "complete", "value": v, "reported": {"1": 3}}
        for n, v in enumerate(values)
    ]
    trials.append({"trial": 4, "state": "pruned", "value": 0.99, "cause": "token=hunter2 failed"})
    for grows, order in ((True, [1, 3, 0, 2, 4]), (False, [0, 3, 1, 2, 4])):
        found = {"metric": "validation_auc", "grows": grows, "importances": {"eta": 1.0}}
        store.write_json(join(run_dir, "report", "trials.json"), {**found, "trials": trials})
        search = site.get(f"{HERE}/tasks/tune/-1/report")["search"]
        assert [trial["trial"] for trial in search["trials"]] == order
        assert search["count"] == 5
        assert search["trials"][4]["cause"] == "token=****** failed"
        assert search["importances"] == {"eta": 1.0}
        assert "reported" not in search["trials"][0]


def test_the_best_of_a_search_is_where_its_best_value_came(site: Site) -> None:
    site.add_run()
    run_dir = site.add_task("tune")
    values = [0.7, 0.9, 0.8, 0.6]
    lines = [
        metric(n, validation_auc=value, best_validation_auc=max(values[:n]))
        for n, value in enumerate(values, start=1)
    ]
    write_segment(run_dir, 1, *lines)
    write_result(run_dir, "tune", metrics={"trials": 4}, best={"trial": 1, "value": 0.9})
    curves = site.get(f"{HERE}/tasks/tune/-1/curves")
    assert (curves["best"], curves["unit"]) == (2, "trial")
    assert site.get(HERE)["stages"][0]["result"]["best"] == {"trial": 1, "value": 0.9}


def test_the_headline_is_the_metric_by_which_the_gate_decided(site: Site) -> None:
    site.add_run()
    run_dir = site.add_task("evaluate")
    write_evaluation(run_dir)
    verdict = join(run_dir, "report", "verdict.json")
    for decided, shown in (("log_loss", "log_loss"), (None, "accuracy"), ("mape", "accuracy")):
        store.write_json(verdict, {**store.read_json(verdict), "metric": decided})
        state = site.get(HERE)
        assert state["evaluation"]["metric"] == shown
        assert state["evaluation"]["champion"]["value"] is not None
        assert state["stages"][0]["result"]["main"] == shown
        report = site.get(f"{HERE}/tasks/evaluate/-1/report")
        assert report["evaluation"]["main"] == shown
