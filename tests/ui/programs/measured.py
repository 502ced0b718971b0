"""Measures the pages; `bench/ui.py` runs it in the environment of the tests in a browser."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from playwright.sync_api import sync_playwright
from tests.plugins.pages import DAG, RUN, Site, write_evaluation
from tests.ui.served import Settings, served

from trainyard import rundir
from trainyard_airflow.ui.events import Follower
from trainyard_airflow.ui.training import curves

BARS = {"server": 0.150, "bytes": 300_000, "usable": 1.5, "event": 3.0}
REPEATS = 7
HERE = f"/runs/{DAG}/{quote(RUN, safe='')}"


def main() -> int:
    """Measure and print; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=10_000)
    epochs: int = parser.parse_args().epochs
    site = Site(Path(os.environ["AIRFLOW_HOME"]), Settings())
    site.add_run("running")
    train = site.add_task("train", "running")
    write_long(train, epochs)
    write_evaluation(site.add_task("evaluate"))
    curves(f"{site.root}/nothing", Follower(), "")  # what a process imports once
    missed = [
        *first_answer(train),
        *answers(site),
        *in_a_browser(site, train, epochs),
    ]
    plugin_cost()
    verdict = f"MISSED: {', '.join(missed)}" if missed else "met"
    print(f"bars {verdict}; load {os.getloadavg()[0]:.1f}")
    return 1 if missed else 0


def write_long(run_dir: str, epochs: int) -> None:
    """Ten events an epoch, ten epochs a segment: what 10 epochs a second write."""
    events = rundir.EventWriter(run_dir, claim=1, writer="rank0", every=0)
    flush, events._flush = events._flush, lambda: None  # type: ignore[method-assign]
    for epoch in range(1, epochs + 1):
        figures = {
            "loss": 2 / epoch**0.5,
            "accuracy": 1 - 0.5 / epoch,
            "validation_loss": 2 / epoch**0.5 + 0.01,
            "validation_accuracy": 0.98 - 0.5 / epoch,
            "rows_per_second": 10_000.0 + epoch % 13,
        }
        events.metric(epoch, **figures)
        for part in range(1, 9):
            events.progress("train", epoch - 1 + part / 9, epochs, "epoch", loss=figures["loss"])
        events.progress("train", epoch, epochs, "epoch", **figures)
        if epoch % 10 == 0:
            flush()
    flush()


def first_answer(run_dir: str) -> list[str]:
    """The curves where nothing is kept: a sample at once, all of them a little later."""
    began = time.perf_counter()
    follower = Follower()
    first = curves(run_dir, follower, "")
    at_once = time.perf_counter() - began
    while curves(run_dir, follower, "")["is_partial"]:
        time.sleep(0.05)
    whole = time.perf_counter() - began
    print(f"first look, nothing kept   {at_once * 1000:7.0f} ms  (whole after {whole:.1f} s)")
    assert first["is_partial"]
    return missed_by("first look", at_once, BARS["server"])


def answers(site: Site) -> list[str]:
    """The answers of a page that is open, in the server and on the wire."""
    browser = site.browser()
    total, size = 0.0, 0
    for name, path in (("state", HERE), ("curves", f"{HERE}/tasks/train/-1/curves")):
        took, body = timed(lambda path=path: browser.get(f"/trainyard/api{path}"))  # type: ignore[misc]
        packed = len(gzip.compress(body, 5))
        print(f"{name:26} {took * 1000:7.0f} ms  {packed / 1000:7.1f} kB compressed")
        total, size = total + took, size + packed
    print(f"{'page':26} {total * 1000:7.0f} ms  {size / 1000:7.1f} kB compressed")
    return [*missed_by("server", total, BARS["server"]), *missed_by("bytes", size, BARS["bytes"])]


def timed(ask: Callable[[], Any]) -> tuple[float, bytes]:
    """Median seconds of an answer, and its bytes."""
    while (answer := ask()).status_code == 200 and answer.json().get("is_partial"):
        time.sleep(0.1)
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        answer = ask()
        times.append(time.perf_counter() - began)
    assert answer.status_code == 200, answer.text
    return statistics.median(times), answer.content


def in_a_browser(site: Site, run_dir: str, epochs: int) -> list[str]:
    """Seconds until the curve is drawn, with the library kept; and until a new event is on it."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        print("no Chromium here: what a browser sees is not measured")
        return []
    token = site.auth.generate_jwt(SimpleAuthManagerUser(username="admin", role="viewer"))
    with served(site) as url, sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = opened.new_context(viewport={"width": 1366, "height": 900})
        context.add_cookies([{"name": "_token", "value": token, "url": url}])
        page = context.new_page()
        drawn = "document.querySelector('.js-plotly-plot .main-svg .trace') !== null"
        times = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            page.goto(f"{url}/trainyard{HERE}")
            until(lambda: page.evaluate(drawn))
            times.append(time.perf_counter() - began)
        usable = statistics.median(times[1:])
        print(f"curve drawn, library kept  {usable * 1000:7.0f} ms  (with it {times[0]:.1f} s)")
        events = rundir.EventWriter(run_dir, claim=2, writer="rank0")
        began = time.perf_counter()
        events.metric(epochs + 1, loss=0.5)
        newest = "document.querySelector('.js-plotly-plot').data[0].x.at(-1)"
        until(lambda: page.evaluate(newest) == epochs + 1)
        late = time.perf_counter() - began
        print(f"event on the curve after   {late * 1000:7.0f} ms")
        opened.close()
    return [
        *missed_by("usable", usable, BARS["usable"]),
        *missed_by("event", late, BARS["event"]),
    ]


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; the pages' policy forbids a browser to wait for a text of code."""
    while not condition():
        time.sleep(0.02)


def plugin_cost() -> None:
    """What the plugin adds to the start of an API server, and once a page was asked for."""
    program = (
        "import json, time\n"
        "import airflow.api_fastapi.app\n"
        "import airflow.api_fastapi.core_api.security, airflow.models.taskinstance\n"
        "def held(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "before, began = held(), time.process_time()\n"
        "import trainyard_plugin\n"
        "start, at_start = time.process_time() - began, held() - before\n"
        "began = time.process_time()\n"
        "from trainyard_airflow.ui.site import make_app; make_app()\n"
        "print(json.dumps([start, at_start, time.process_time() - began, held() - before]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    start, at_start, first, later = json.loads(done.stdout.splitlines()[-1])
    print(f"plugin at the start        {start * 1000:7.0f} ms  {at_start / 1e6:7.1f} MB")
    print(f"and with the first page    {first * 1000:7.0f} ms  {later / 1e6:7.1f} MB in all")


def missed_by(name: str, value: float, bar: float) -> list[str]:
    """The name, where its bar is missed."""
    return [] if value <= bar else [name]


if __name__ == "__main__":
    sys.exit(main())
