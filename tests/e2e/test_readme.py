"""The README's page on one's own data and network, followed to the letter."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.e2e.own_airflow import ROOT, clean_environment
from tests.e2e.runs import Run, dag_ids, wait_until

from services.api import Api
from services.installation import Installation

pytestmark = pytest.mark.timeout(600)

BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)
ROW = re.compile(r"^\| (`.*) \| (.*) \|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


@pytest.fixture
def page(tmp_path: Path) -> str:
    """The page, with a directory of the test's in the place of `/home/you`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = re.search(r"^## Your own data and network\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    return section[1].replace("/home/you", str(tmp_path))


def test_own_data_and_network_train_and_serve(
    page: str, tmp_path: Path, installation: Installation, api: Api
) -> None:
    (_, make_data), (_, network) = BLOCK.findall(page)
    environment = clean_environment(installation.home, installation.port)
    subprocess.run(["sh", "-c", make_data], cwd=ROOT, env=environment, check=True, timeout=60)
    (tmp_path / "flowers_net.py").write_text(network, encoding="utf-8")
    copy = (ROOT / "dags" / "mnist_horovod.py").read_text(encoding="utf-8")
    for places, becomes in ROW.findall(page):
        new = CODE.search(becomes)
        for old in CODE.findall(places):
            assert old in copy, f"the DAG has no {old}"
            copy = copy.replace(old, new[1] if new else "")
    (installation.home / "dags" / "flowers.py").write_text(copy, encoding="utf-8")
    wait_until(lambda: "flowers" in dag_ids(api), 60)

    run = Run.trigger(api, "flowers")

    assert run.wait() == "success"
    prepared, evaluated = run.xcom("prepare"), run.xcom("evaluate")
    assert prepared["rows"]["in"] == 150
    assert evaluated["metrics"]["accuracy"]["value"] > 0.9
    assert run.xcom("predict")["rows"]["out"] == prepared["rows"]["test"]
    assert run.xcom("promote")["champion"] == {
        "name": "flowers",
        "version": "1",
        "uri": "models:/flowers/1",
    }
