"""A real Airflow with a real run, and a browser that notes what it asks for and complains about."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, sync_playwright
from tests.e2e.own_airflow import ROOT, clean_environment, free_port, services_up
from tests.e2e.runs import Run

from services.api import Api
from services.installation import USER, Installation

SHOTS = Path(os.environ.get("SHOTS", ROOT / "var" / "test" / "shots"))
"""Where pictures of the pages go, to be looked at."""

SIZES = {"desktop": (1366, 900), "phone": (390, 844)}


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Airflow's services, up for all the tests here."""
    home = tmp_path_factory.mktemp("installation")
    place = Installation(home=home, port=free_port())
    environment = clean_environment(home, place.port)
    with services_up(environment):
        yield place


@pytest.fixture(scope="session")
def api(installation: Installation) -> Api:
    """A session with its REST API."""
    return Api(installation.url, USER, installation.password())


@pytest.fixture(scope="session")
def first_run(api: Api) -> Run:
    """A run that has ended: its model serves."""
    run = Run.trigger(api, "mnist_horovod", epochs=4, seed=1, minimum_accuracy=0.2)
    assert run.wait() == "success"
    return run


@pytest.fixture(scope="session")
def two_versions(first_run: Run, api: Api) -> None:
    """Two versions of its model, the second one with another number of epochs."""
    ended = api.get("dags", first_run.dag_id, "dagRuns")["dag_runs"]
    if sum(run["state"] == "success" for run in ended) < 2:
        assert (
            Run.trigger(api, first_run.dag_id, epochs=3, seed=2, minimum_accuracy=0.2).wait()
            == "success"
        )


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The machine's Chromium."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    assert found, "Install Chromium, or name one by CHROMIUM."
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class Visitor:
    """Somebody who is logged in and looks at pages.

    Attributes:
        complaints: errors on the console, and hosts that were asked and should not have been.
    """

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note what goes wrong in the plugin's pages, and every request to another host."""
        host = urlsplit(self.url).netloc

        def said(message: object) -> None:
            kind, text = message.type, message.text  # type: ignore[attr-defined]
            where = message.location.get("url", "")  # type: ignore[attr-defined]
            if kind == "error" and "/trainyard/" in where:
                self.complaints.append(f"{text} ({where})")

        def asked(request: object) -> None:
            url = request.url  # type: ignore[attr-defined]
            if url.startswith("http") and urlsplit(url).netloc != host:
                self.complaints.append(f"asked {url}")

        self.page.on("console", said)
        self.page.on("request", asked)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    def log_in(self, password: str) -> None:
        """Log in by Airflow's own form."""
        self.page.goto(self.url)
        self.page.locator("input[name=username]").fill(USER)
        self.page.locator("input[name=password]").fill(password)
        self.page.locator("button[type=submit]").click()
        self.page.wait_for_url(lambda url: "/auth/login" not in url)

    def open(self, path: str) -> FrameLocator:
        """Open a page of Airflow's UI; return the plugin's in it."""
        self.page.goto(f"{self.url}/{path}")
        return self.page.frame_locator("iframe")

    def choose(self, theme: str) -> None:
        """Choose light or dark as Airflow's own switch does, and look anew."""
        self.page.evaluate("theme => localStorage.setItem('theme', theme)", theme)

    def shoot(self, name: str) -> None:
        """Take a picture of the page."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SHOTS / f"{name}.png"))


@pytest.fixture
def visitor(browser: Browser, installation: Installation) -> Iterator[Visitor]:
    """A visitor who has logged in; nothing may have gone wrong when the test is over."""
    width, height = SIZES["desktop"]
    context = browser.new_context(
        viewport={"width": width, "height": height}, accept_downloads=True
    )
    visitor = Visitor(page=context.new_page(), url=installation.url)
    visitor.watch()
    visitor.log_in(installation.password())
    yield visitor
    context.close()
    assert visitor.complaints == []
