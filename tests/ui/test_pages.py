"""The pages in a browser, on a real Airflow with real runs."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, FrameLocator, expect
from tests.e2e.runs import Run, wait_until
from tests.ui.conftest import SHOTS, SIZES, Visitor

from services.api import Api
from services.installation import Installation

pytestmark = pytest.mark.timeout(600)

POINTS = """() => [...document.querySelectorAll('.js-plotly-plot')]
    .map(plot => Math.max(0, ...plot.data.map(line => (line.x ?? []).length)))"""


def training(run: Run) -> str:
    return f"dags/{run.dag_id}/runs/{quote(run.run_id, safe='')}/plugin/training"


def seen(frame: FrameLocator, text: str, seconds: float = 30) -> None:
    expect(frame.get_by_text(text).first).to_be_visible(timeout=seconds * 1000)


def inside(visitor: Visitor) -> Any:
    """The plugin's document."""
    # Airflow's own address ends with the one of the page that it shows.
    frames = visitor.page.frames
    return next(f for f in frames if urlsplit(f.url).path.startswith("/trainyard/"))


def settled(visitor: Visitor) -> None:
    """Wait until every chart in sight is drawn."""
    inside(visitor).locator(".main-svg").first.wait_for()
    visitor.page.wait_for_timeout(500)


def test_the_curve_moves_while_a_run_trains(visitor: Visitor, api: Api) -> None:
    run = Run.trigger(api, "mnist_horovod", epochs=60, seed=2)
    frame = visitor.open(training(run))
    seen(frame, "Training of mnist_horovod")
    frame.locator(".main-svg").first.wait_for(timeout=300_000)
    shown = inside(visitor)
    first = max(shown.evaluate(POINTS))
    wait_until(lambda: max(shown.evaluate(POINTS)) > first, 60)
    visitor.shoot("running")
    assert run.wait() == "success"
    seen(frame, "The gate, rule by rule", 60)
    seen(frame, "Confusion matrix")
    assert shown.locator(".answer b").inner_text().startswith("0.9")


def test_the_finished_run_has_its_charts_and_files(
    visitor: Visitor, first_run: Run, tmp_path: Path
) -> None:
    frame = visitor.open(training(first_run))
    seen(frame, "Metrics")
    for title in ("Loss", "Accuracy", "Throughput", "ROC", "Calibration", "Confusion matrix"):
        expect(frame.get_by_role("heading", name=title, exact=True)).to_have_count(1)
    seen(frame, "Ranks")
    settled(visitor)
    for kind, head in (("CSV", b"epoch,loss,validation_loss"), ("PNG", b"\x89PNG")):
        with visitor.page.expect_download() as download:
            frame.get_by_role("button", name=f"Loss: save as {kind}").click()
        file = tmp_path / f"loss.{kind}"
        download.value.save_as(file)
        assert file.read_bytes().startswith(head)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible_and_fits(
    visitor: Visitor, first_run: Run, theme: str, size: str
) -> None:
    width, height = SIZES[size]
    visitor.choose(theme)
    visitor.page.set_viewport_size({"width": width, "height": height})
    root = f"{visitor.url}/trainyard"
    run = f"runs/{first_run.dag_id}/{quote(first_run.run_id, safe='')}"
    pages = {
        "training": (run, "Metrics"),
        "task": (f"{run}/tasks/train/-1", "best epoch"),
        "models": ("models", "Champion"),
        "model": ("models/mnist", "Versions"),
        "version": ("models/mnist/versions/1", "Parameters"),
    }
    for name, (path, text) in pages.items():
        visitor.page.goto(f"{root}/{path}")
        expect(visitor.page.get_by_text(text).first).to_be_visible(timeout=60_000)
        visitor.page.wait_for_timeout(1500)
        assert visitor.page.evaluate("document.documentElement.dataset.theme") == theme
        over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert visitor.page.evaluate(over) <= 0, f"{name} scrolls sideways"
        visitor.shoot(f"{name}-{theme}-{size}")
        if name == "training":
            for figure in visitor.page.locator("figure").all():
                figure.scroll_into_view_if_needed()
                expect(figure.locator("svg").first).to_be_visible()
            visitor.page.wait_for_timeout(500)
            whole = SHOTS / f"whole-{theme}-{size}.png"
            visitor.page.screenshot(path=str(whole), full_page=True)
        violations = Axe().run(visitor.page).response["violations"]
        assert [(v["id"], [n["html"] for n in v["nodes"]][:2]) for v in violations] == []


def test_models_are_in_the_navigation_and_compare(visitor: Visitor, two_versions: None) -> None:
    visitor.page.get_by_role("link", name="Models").or_(
        visitor.page.get_by_text("Models", exact=True)
    ).first.click()
    frame = visitor.page.frame_locator("iframe")
    seen(frame, "Serves since", 60)
    frame.get_by_role("link", name="mnist", exact=True).click()
    seen(frame, "Side by side", 30)
    frame.get_by_label("One version").select_option("1")
    frame.get_by_label("Another version").select_option("2")
    frame.get_by_role("button", name="Compare").click()
    seen(frame, "Parameters that differ", 30)
    seen(frame, "epochs")
    visitor.shoot("compare")
    frame.get_by_role("heading", name="Validation loss").scroll_into_view_if_needed()
    settled(visitor)


def test_a_failed_task_says_cause_and_fix(visitor: Visitor, api: Api) -> None:
    run = Run.trigger(api, "mnist_horovod", epochs=1, batch_size=1_000_000)
    wait_until(lambda: run.tasks()["train"]["state"] == "failed", 200)
    task = f"dags/{run.dag_id}/runs/{quote(run.run_id, safe='')}/tasks/train/plugin/progress"
    frame = visitor.open(task)
    seen(frame, "Cause:")
    seen(frame, "setting 'batch_size' is 1000000")
    seen(frame, "Use a batch_size of")
    visitor.shoot("failed-task")
    frame = visitor.open(training(run))
    seen(frame, "Cause:")
    visitor.shoot("failed-run")


def test_the_theme_follows_airflows_at_once(visitor: Visitor, first_run: Run) -> None:
    visitor.choose("light")
    frame = visitor.open(training(first_run))
    seen(frame, "Metrics")
    settled(visitor)
    whole = frame.locator(":root")
    expect(whole).to_have_attribute("data-theme", "light")
    visitor.choose("dark")
    expect(whole).to_have_attribute("data-theme", "dark")
    visitor.page.wait_for_timeout(500)
    visitor.shoot("training-in-airflow-dark")
    visitor.choose("light")
    expect(whole).to_have_attribute("data-theme", "light")
    visitor.page.wait_for_timeout(500)
    visitor.shoot("training-in-airflow-light")


def test_without_a_session_there_is_nothing(
    browser: Browser, installation: Installation, first_run: Run
) -> None:
    run = f"{first_run.dag_id}/{quote(first_run.run_id, safe='')}"
    for path in (f"runs/{run}", f"api/runs/{run}", "models", "api/models"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{installation.url}/trainyard/{path}", timeout=30)
        assert refused.value.code == 401
