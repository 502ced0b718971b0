"""The pages' data: what a run directory says, to whoever may know it, however far the run is."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.plugins.pages import (
    DAG,
    RUN,
    Site,
    write_evaluation,
    write_result,
    write_training,
)

from trainyard import rundir, store
from trainyard.errors import JobError
from trainyard.layout import EVENTS, join

HERE = f"/runs/{DAG}/{quote(RUN, safe='')}"
TRAIN = f"{HERE}/tasks/train/-1"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def stages(site: Site) -> dict[str, dict[str, Any]]:
    return {stage["task_id"]: stage for stage in site.get(HERE)["stages"]}


def test_a_run_that_has_begun_nothing_shows_its_stages_in_order(site: Site) -> None:
    site.add_run("running")
    for weight, task in enumerate(["predict", "train", "prepare"], start=1):
        site.add_task(task, None, weight=weight)
    state = site.get(HERE)
    assert [stage["task_id"] for stage in state["stages"]] == ["prepare", "train", "predict"]
    assert not state["is_over"]
    assert state["evaluation"] is None
    assert {stage["run_dir"] for stage in state["stages"]} == {None}


def test_a_running_training_tells_how_far_it_is_and_what_is_left(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    write_training(run_dir, 5, of=20)
    stage = stages(site)["train"]
    assert stage["has_curves"]
    assert stage["progress"][0]["done"] == 5
    assert stage["progress"][0]["total"] == 20
    assert stage["progress"][0]["left"] > 0
    assert site.get(f"{TRAIN}/curves")["best"] == 5


def test_a_search_shows_its_trials(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("tune", "running")
    with closing(rundir.EventWriter(run_dir, claim=1, writer="driver", every=0)) as events:
        for number, value in enumerate((0.5, 0.25), start=1):
            events.metric(number, validation_loss=value, best_validation_loss=value)
            events.progress("tune", number, 4, "trial", pruned=0, failed=0)
    assert stages(site)["tune"]["progress"][0]["unit"] == "trial"
    for _ in range(2):
        curves = site.get(f"{HERE}/tasks/tune/-1/curves")
        assert curves["unit"] == "trial"
        assert curves["curves"]["best_validation_loss"] == [[1, 2], [0.5, 0.25]]
        write_result(run_dir, "tune", metrics={"trials": 2})
    assert stages(site)["tune"]["has_curves"]


def test_a_cursor_brings_only_what_is_new(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    write_training(run_dir, 5, of=20)
    first = site.get(f"{TRAIN}/curves")
    assert first["reset"]
    assert first["curves"]["loss"][0] == [1, 2, 3, 4, 5]
    assert site.get(f"{TRAIN}/curves?cursor={first['cursor']}")["curves"]["loss"] == [[], []]
    write_training(run_dir, 7, of=20, start=6, claim=2)
    new = site.get(f"{TRAIN}/curves?cursor={first['cursor']}")
    assert not new["reset"]
    assert new["curves"]["loss"][0] == [6, 7]
    assert new["resumed"] == [6]


def test_a_training_that_resumes_earlier_is_told_anew(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    write_training(run_dir, 5, of=20)
    first = site.get(f"{TRAIN}/curves")
    events = rundir.EventWriter(run_dir, claim=2, writer="rank0")
    events.metric(4, loss=9.5, accuracy=0.1)
    events.close()
    again = site.get(f"{TRAIN}/curves?cursor={first['cursor']}")
    assert again["reset"]
    assert again["curves"]["loss"][1][3] == 9.5


def test_a_loss_that_is_no_number_is_a_gap(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    events = rundir.EventWriter(run_dir, claim=1, writer="rank0")
    events.metric(1, loss=1.0)
    events.metric(2, loss=float("nan"))
    events.metric(4, loss=0.5)
    events.close()
    assert site.get(f"{TRAIN}/curves")["curves"]["loss"] == [[1, 2, 3, 4], [1.0, None, None, 0.5]]


def test_ten_thousand_epochs_become_few_points_that_keep_what_stands_out(site: Site) -> None:
    site.add_run("success")
    run_dir = site.add_task("train")
    write_training(run_dir, 10_000)
    events = rundir.EventWriter(run_dir, claim=2, writer="rank0")
    events.metric(10_001, loss=77.0)
    events.metric(10_002, loss=0.1)
    events.close()
    answer = site.browser().get(f"/trainyard/api{TRAIN}/curves")
    steps, values = answer.json()["curves"]["loss"]
    assert 500 < len(steps) <= 1002
    assert max(values) == 77.0
    assert steps[0] == 1
    assert steps[-1] == 10_002
    assert len(answer.content) < 300_000


def test_a_first_look_at_very_many_segments_is_a_sample_and_soon_whole(site: Site) -> None:
    site.add_run("success")
    run_dir = site.add_task("train")
    for number in range(1, 701):
        line = {"time": float(number), "kind": "metric", "step": number, "values": {"loss": 1.0}}
        name = f"0001-rank0-{number:06d}.jsonl"
        path = Path(join(run_dir, EVENTS, name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(line) + "\n")
    first = site.get(f"{TRAIN}/curves")
    assert first["is_partial"]
    assert first["last"] == 700
    deadline = time.monotonic() + 30
    while (whole := site.get(f"{TRAIN}/curves?cursor={first['cursor']}"))["is_partial"]:
        assert time.monotonic() < deadline
    assert whole["reset"]
    assert None not in whole["curves"]["loss"][1]


def test_what_is_damaged_is_left_out_and_said(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    write_training(run_dir, 3, of=20)
    store.write_bytes(join(run_dir, EVENTS, "0001-rank1-000001.jsonl"), b'{"time": 1, "kind": "me')
    store.write_bytes(join(run_dir, "result.json"), b'{"job": "train_h')
    assert stages(site)["train"]["state"] == "running"
    curves = site.get(f"{TRAIN}/curves")
    assert curves["is_damaged"]
    assert curves["last"] == 3


def test_events_of_other_kinds_and_shapes_do_no_harm(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    write_training(run_dir, 3, of=20)
    events = rundir.EventWriter(run_dir, claim=1, writer="rank1")
    events.write("a_kind_of_tomorrow", text="?")
    events.write("metric", step=-4, values={"loss": 1.0})
    events.write("metric", step=2)
    events.write("progress", stage="train", done="much", total=2, unit="epoch", figures={})
    events.close()
    answer = site.get(f"{TRAIN}/curves")
    assert answer["last"] == 3
    assert answer["is_damaged"]


@pytest.mark.parametrize(
    ("told", "shown"),
    [("http://driver:4040", "http://driver:4040"), ("javascript:alert(1)", None)],
)
def test_sparks_pages_are_linked_while_it_runs(site: Site, told: str, shown: str | None) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    events = rundir.EventWriter(run_dir, claim=1, writer="driver")
    events.write("spark", ui=told)
    events.close()
    assert stages(site)["train"]["spark"] == shown


def test_a_failed_task_says_cause_and_fix_without_secrets(site: Site) -> None:
    site.add_run("failed")
    run_dir = site.add_task("train", "failed")
    error = JobError("the loss became nan; token=hunter2 was used.", "Lower learning_rate.")
    rundir.write_failure(run_dir, error, claim=1, details="Traceback of the inside")
    answer = site.browser().get(f"/trainyard/api{HERE}")
    failure = answer.json()["stages"][0]["failure"]
    assert failure["cause"].startswith("the loss became nan")
    assert failure["fix"] == "Lower learning_rate."
    assert failure["permanent"]
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text


def test_a_failure_of_an_earlier_try_is_not_shown_once_it_runs_again(site: Site) -> None:
    site.add_run("running")
    run_dir = site.add_task("train", "running")
    rundir.write_failure(run_dir, JobError("a rank was lost.", "Nothing."), claim=1)
    assert stages(site)["train"]["failure"] is None


def test_a_failure_of_an_earlier_try_does_not_explain_a_later_one(site: Site) -> None:
    site.add_run("failed")
    run_dir = site.add_task("train", "failed", at=7200)
    rundir.write_failure(run_dir, JobError("a rank was lost.", "Nothing."), claim=1)
    assert stages(site)["train"]["failure"] is None


def test_a_finished_run_has_one_number_and_a_verdict(site: Site) -> None:
    site.add_run()
    run_dir = site.add_task("evaluate")
    write_evaluation(run_dir)
    evaluation = site.get(HERE)["evaluation"]
    assert evaluation["metric"] == "accuracy"
    assert evaluation["value"]["value"] == 0.97
    assert evaluation["champion"]["version"] == "4"
    assert evaluation["verdict"]["promoted"]
    report = site.get(f"{HERE}/tasks/evaluate/-1/report")
    assert report["evaluation"]["differences"]["accuracy"]["value"] == pytest.approx(0.01)
    assert report["evaluation"]["confidence"] == 0.9
    assert report["pictures"] == ["confusion.png"]


def test_a_clear_shows_the_new_generation_alone(site: Site) -> None:
    site.add_run()
    old = site.add_task("evaluate", "queued", generation=3)
    write_evaluation(old.replace("/g3", "/g2"))
    assert site.get(HERE)["evaluation"] is None


def test_mapped_tasks_are_told_apart(site: Site) -> None:
    site.add_run()
    for index in (0, 1):
        run_dir = site.add_task("train", map_index=index)
        write_training(run_dir, 3 + index)
        write_result(run_dir, "train_horovod", metrics={"best_epoch": index + 1})
    found = [
        site.get(f"{HERE}/tasks/train/{index}/curves")[what]
        for index in (0, 1)
        for what in ("last", "best")
    ]
    assert found == [3, 1, 4, 2]


def test_a_picture_is_served_by_its_name_alone(site: Site) -> None:
    site.add_run()
    write_evaluation(site.add_task("evaluate"))
    store.write_bytes(f"{site.root}/secret.png", b"not yours")
    here = f"/trainyard/api{HERE}/tasks/evaluate/-1/pictures"
    browser = site.browser()
    assert browser.get(f"{here}/confusion.png").content == b"\x89PNG made up"
    for name in ("..%2F..%2F..%2F..%2F..%2Fsecret.png", "result.json", "%2Fetc%2Fpasswd"):
        assert browser.get(f"{here}/{name}").status_code == 404


def routes() -> dict[str, str]:
    """An address of every route, by its pattern."""
    from trainyard_airflow.ui.site import make_app

    known = {"task_id": "evaluate", "name": "confusion.png", "map_index": -1, "version": 1}
    ids = {"dag_id": DAG, "run_id": quote(RUN, safe=""), "tag": "t", **known}
    patterns = [getattr(route, "path", "") for route in make_app().routes]
    return {pattern: f"/trainyard{pattern.format(**ids)}?a=1&b=2" for pattern in patterns}


def test_who_has_no_session_and_who_may_not_read_the_dag_sees_nothing(site: Site) -> None:
    site.add_run()
    write_evaluation(site.add_task("evaluate"))
    addresses = routes()
    of_runs = [pattern for pattern in addresses if "{dag_id}" in pattern]
    assert len(of_runs) == 7
    for accept in ("text/html", "application/json"):
        answers = {
            (user, pattern): site.browser(user).get(address, headers={"accept": accept})
            for pattern, address in addresses.items()
            for user in (None, "flights", "mnist")
        }
        statuses = {asked: answer.status_code for asked, answer in answers.items()}
        open_to_all = [pattern for pattern in addresses if statuses[None, pattern] != 401]
        assert open_to_all == ["/static/{tag}/{name}"]
        for pattern in of_runs:
            assert (statuses["flights", pattern], statuses["mnist", pattern]) == (403, 200)
        # What is not a file for everybody is kept nowhere, refusals neither.
        assert {answer.headers["cache-control"] for answer in answers.values()} == {"no-store"}
        assert all("content-security-policy" in answer.headers for answer in answers.values())


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    browser = site.browser()
    answers = [browser.request(method, address) for address in routes().values()]
    assert {answer.status_code for answer in answers} == {405}


def test_an_id_is_no_path(site: Site) -> None:
    site.add_run()
    browser = site.browser()
    for run in ("..%2F..", "%2E%2E", "nosuch", "%00"):
        assert browser.get(f"/trainyard/api/runs/{DAG}/{run}").status_code == 404
    assert browser.get(f"/trainyard/api{HERE}/tasks/..%2Ftrain/-1").status_code == 404


def test_an_error_says_nothing_of_the_inside(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add_run()
    from trainyard_airflow.ui import training

    for error, status in (
        (RuntimeError("/srv/secret.py"), 500),
        (OSError("/srv/secret"), 503),
        (JobError("the store /srv/secret is away.", "Bring it back."), 503),
    ):

        def fail(*_: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(training, "state", fail)
        answer = site.browser().get(f"/trainyard/api{HERE}")
        assert answer.status_code == status
        assert "secret" not in answer.text
        assert "log" in answer.json()["detail"]


def test_a_page_loads_nothing_from_elsewhere_and_no_script_of_its_text(site: Site) -> None:
    site.add_run()
    answer = site.browser().get(f"/trainyard{HERE}")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy.replace("style-src-attr 'unsafe-inline'", "")
    assert "//" not in answer.text.replace("<!--", "")
    assert "<script>" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_page_escapes_ids(site: Site) -> None:
    name = '"><img src=x onerror=alert(1)>'
    answer = site.browser().get(f"/trainyard/models/{quote(name, safe='')}")
    assert answer.status_code == 200
    assert "<img" not in answer.text


def test_files_are_kept_for_ever_under_an_address_of_their_content(site: Site) -> None:
    site.add_run()
    page = site.browser().get(f"/trainyard{HERE}").text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(addresses) == 3
    browser = site.browser(None)
    for address in addresses:
        answer = browser.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    other = addresses[0].replace(addresses[0].split("/")[3], "0" * 16)
    assert browser.get(other).status_code == 404


def test_addresses_begin_with_airflows_base_path(site: Site) -> None:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    site.add_run()
    outer = FastAPI(root_path="/airflow")
    outer.mount("/trainyard", site.app.routes[-1].app)  # type: ignore[attr-defined]
    client = TestClient(outer, cookies=dict(site.browser().cookies))
    page = client.get(f"/airflow/trainyard{HERE}").text
    assert 'data-root="/airflow/trainyard"' in page
    assert 'data-airflow="/airflow"' in page
    assert 'src="/airflow/trainyard/static/' in page
