"""Pages of runs with odd names, of searches, of many tasks and of damaged files, in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from tests.plugins.pages import (
    DAG,
    RUN,
    Site,
    metric,
    write_evaluation,
    write_result,
    write_training,
)
from tests.ui.conftest import SHOTS, SIZES
from tests.ui.served import served

from trainyard import rundir, store
from trainyard.errors import JobError
from trainyard.layout import join

MARKUP = "<b>bold</b><a href='http://elsewhere.example/'>here</a><img src=x onerror=alert(1)>"
LONG = "manual__" + "x" * 230
HERE = f"runs/{DAG}/{quote(RUN, safe='')}"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


@pytest.fixture
def page(site: Site, browser: Browser) -> Iterator[Page]:
    """A page of somebody who has logged in; nothing may have gone wrong when the test is over."""
    token = site.auth.generate_jwt(SimpleAuthManagerUser(username="admin", role="viewer"))
    complaints: list[str] = []
    asked: list[str] = []
    with served(site) as url:
        context = browser.new_context(base_url=f"{url}/trainyard/")
        context.add_cookies([{"name": "_token", "value": token, "url": url}])
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        yield page
        context.close()
    assert complaints == []
    assert [each for each in asked if not each.startswith((url, "data:", "blob:"))] == []


def look(page: Page, path: str, name: str, size: str = "desktop") -> None:
    """Open a page, draw all its charts, take a picture; it must not scroll sideways."""
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.goto(path)
    page.locator("main:not([aria-busy])").wait_for()
    page.wait_for_timeout(1000)
    for figure in page.locator("figure").all():
        figure.scroll_into_view_if_needed()
        expect(figure.locator("svg").first).to_be_visible()
    page.wait_for_timeout(500)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SHOTS / f"{name}-{size}.png"), full_page=True)
    over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(over) <= 0, f"{name} scrolls sideways"
    violations = Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"] for n in v["nodes"]][:2]) for v in violations] == []


def odd_names(site: Site) -> None:
    site.add_run("failed", run_id=LONG)
    train = site.add_task("train_" + "y" * 150, "failed", run_id=LONG)
    events = rundir.EventWriter(train, claim=1, writer="rank0")
    for epoch in range(1, 5):
        events.metric(epoch, **{MARKUP: 1 / epoch, "loss": 1 / epoch, "z" * 100: 1.0})
    events.close()
    rundir.write_failure(train, JobError(f"{MARKUP} {'q' * 300}", "Fix <i>it</i>."), claim=1)
    evaluate = site.add_task("evaluate", at=60, run_id=LONG)
    write_evaluation(evaluate)
    classes = ["<5", MARKUP, "&amp;"]
    line = {"area": 0.9, "x": [0, 0.1, 1], "y": [0, 0.9, 1]}
    charts = {
        "label": "<u>digit</u>",
        "rows": 27,
        "classes": classes,
        "confusion": [[9, 0, 0], [0, 9, 0], [0, 0, 9]],
        "curves": [{"name": name, "roc": line, "precision_recall": line} for name in classes],
        "mistakes": {
            "shape": None,
            "rows": [{"key": MARKUP, "label": "<5", "prediction": MARKUP, "probability": 0.9}],
        },
    }
    store.write_json(join(evaluate, "report", "charts.json"), charts)
    metrics = store.read_json(join(evaluate, "report", "metrics.json"))
    parts = {name: {"rows": 9, "metrics": {"accuracy": metric(0.5)}} for name in classes}
    metrics["slices"] = {MARKUP: parts}
    store.write_json(join(evaluate, "report", "metrics.json"), metrics)


@pytest.mark.parametrize("size", SIZES)
def test_names_are_texts_in_tables_and_charts(site: Site, page: Page, size: str) -> None:
    odd_names(site)
    look(page, f"runs/{DAG}/{LONG}", "odd-names", size)
    assert page.locator("img[src=x], .plot a, .plot b, h3 b, td b").count() == 0
    ticks = page.locator(".xaxislayer-above, .yaxislayer-above, .legend").all_text_contents()
    assert any("<5" in text for text in ticks)
    assert any("&amp;" in text for text in ticks)
    assert any("<img src=x" in text for text in ticks)


def search(site: Site, *, of: int, ended: int) -> str:
    run_dir = site.add_task("tune", "success" if ended == of else "running", at=30, seconds=300)
    events = rundir.EventWriter(run_dir, claim=1, writer="driver")
    values = [0.9 / (1 + n * 7 % 5) for n in range(ended)]
    for n, value in enumerate(values, start=1):
        events.metric(n, validation_loss=value, best_validation_loss=min(values[:n]))
        events.progress("tune", n, of, "trial", pruned=0, failed=0)
    events.close()
    return run_dir


def test_a_search_shows_how_far_it_is_and_what_it_found(site: Site, page: Page) -> None:
    site.add_run("running")
    run_dir = search(site, of=8, ended=5)
    look(page, HERE, "search-running")
    expect(page.locator("#now")).to_contain_text("5 of 8 trials")
    expect(page.locator(".plot")).to_have_count(1)
    title = page.locator(".plot .xtitle")
    expect(title).to_have_text("Trials that have ended")
    trials = [
        {"trial": n, "state": "complete", "value": 0.9 - n / 10, "params": {"eta": n, "net": "a.b"}}
        for n in range(8)
    ]
    found = {"metric": "validation_loss", "grows": False, "importances": {"eta": 0.8, "net": 0.2}}
    store.write_json(join(run_dir, "report", "trials.json"), {**found, "trials": trials})
    best = {"trial": 7, "metric": "validation_loss", "value": 0.2}
    write_result(run_dir, "tune", best=best, trials={"complete": 8}, metrics={"trials": 8})
    look(page, HERE, "search", "phone")
    rows = page.locator("#trials tbody tr")
    expect(rows).to_have_count(8)
    expect(rows.first).to_contain_text("0.2000")
    expect(page.get_by_role("heading", name="Influence of settings")).to_have_count(1)
    expect(page.locator("#files")).to_contain_text("by trial 7, the best of 8")


def test_a_search_of_which_nothing_came_says_why_of_each(site: Site, page: Page) -> None:
    site.add_run("failed")
    run_dir = site.add_task("tune", "failed")
    with closing(rundir.EventWriter(run_dir, claim=1, writer="driver")) as events:
        events.metric(1, validation_loss=None, best_validation_loss=None)
        events.progress("tune", 1, 1, "trial", failed=1)
    trial = {"trial": 0, "state": "fail", "value": None, "params": {}, "cause": "It was too large."}
    found = {"metric": "validation_loss", "grows": False, "importances": {}, "trials": [trial]}
    store.write_json(join(run_dir, "report", "trials.json"), found)
    look(page, HERE, "search-failed")
    expect(page.locator("#trials tbody")).to_contain_text("It was too large.")
    expect(page.get_by_text("None of its figures is a number.")).to_be_visible()
    expect(page.locator("section[id^=curves] figure")).to_have_count(0)
    page.screenshot(path=SHOTS / "search-failed-desktop.png", full_page=True)


def test_many_mapped_tasks_are_told_together(site: Site, page: Page) -> None:
    site.add_run("running")
    for index in range(40):
        state = "success" if index < 20 else "running" if index < 30 else None
        run_dir = site.add_task("train", state, map_index=index, attempt=int(index < 30))
        if state:
            write_training(run_dir, 3, of=10)
    look(page, HERE, "mapped")
    expect(page.locator(".stage")).to_have_count(1)
    expect(page.locator(".stage")).to_contain_text("20 done, 10 running, 10 not started")
    expect(page.locator("section[id^=curves]")).to_have_count(6)
    expect(page.get_by_text("Of 24 more tasks")).to_be_visible()


def test_what_is_damaged_hides_nothing_else(site: Site, page: Page) -> None:
    site.add_run()
    evaluate = site.add_task("evaluate")
    write_evaluation(evaluate)
    store.write_json(join(evaluate, "report", "charts.json"), {"confusion": 3, "classes": 2})
    verdict = join(evaluate, "report", "verdict.json")
    store.write_bytes(verdict, json.dumps({"verdict": 7, "promoted": True}).encode())
    write_result(site.add_task("tune", at=60), "tune", best={"value": []}, trials={"x": "y"})
    look(page, HERE, "damaged")
    expect(page.locator("#metrics tbody tr")).to_have_count(2)
    expect(page.get_by_text("A part of the report cannot be read")).to_have_count(2)
    expect(page.locator("#files tbody tr")).to_have_count(2)
