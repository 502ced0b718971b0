"""What the tests in a browser need: Airflow once more, FAB's auth manager, Playwright."""

from __future__ import annotations

from environments.recipes import ROOT, TOOLS, VENVS
from environments.steps import Steps

UI_LOCK = ROOT / "tests/ui/requirements.txt"


def make_ui(python: str, steps: Steps) -> None:
    """Make it from its lock; the browser is the machine's own."""
    venv = VENVS / "ui"
    with steps.step("ui: create the environment"):
        steps.run([python, "-m", "venv", str(venv)])
    with steps.step("ui: install Airflow, FAB's auth manager and Playwright"):
        install = [f"{TOOLS}/bin/uv", "pip", "install", f"--python={venv}/bin/python"]
        steps.run([*install, "--no-deps", "--require-hashes", f"--requirement={UI_LOCK}"])
