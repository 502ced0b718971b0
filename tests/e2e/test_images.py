"""The DAG image_labels from end to end, started by an update of the asset of images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.own_airflow import ROOT
from tests.e2e.runs import Run, dag_ids, in_jobs_environment, wait_until

from services.api import Api

pytestmark = pytest.mark.timeout(400)

DAG = "image_labels"
LABELLED = (
    "import json, sys, pyarrow.dataset as ds\n"
    "rows = ds.dataset(sys.argv[1]).to_table().to_pylist()\n"
    "print(json.dumps({row['key']: row.get('labels') or row['reason'] for row in rows}))"
)


def test_an_update_of_the_images_labels_those_that_it_names(api: Api, tmp_path: Path) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    (found,) = (ROOT / ".venv/jobs").glob("lib/*/site-packages/sklearn/datasets/images")
    for name in ("china.jpg", "flower.jpg"):
        shutil.copy(found / name, folder / name)
    for number in range(10):
        shutil.copy(found / "flower.jpg", folder / f"flower-{number}.jpg")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff")

    wait_until(lambda: DAG in dag_ids(api), 60)
    (asset,) = [a for a in api.get("assets")["assets"] if a["name"] == "images"]
    event = {"asset_id": asset["id"], "extra": {"source": str(folder)}}
    api.post("assets", "events", body=event)
    wait_until(lambda: runs(api), 60)
    (run_id,) = runs(api)
    run = Run(api=api, dag_id=DAG, run_id=run_id)
    assert run.wait() == "success"

    result = run.xcom("label")
    assert result["rows"] == {"in": 13, "out": 12, "quarantined": 1}
    outputs = result["outputs"]
    labels = found_in(outputs["predictions"])
    assert labels[str(folder / "china.jpg")][0] == "palace"
    assert labels[str(folder / "flower.jpg")][0] == "daisy"
    assert len(labels[str(folder / "flower.jpg")]) == 5
    assert "images 13/13" in run.log("label")
    assert list(found_in(outputs["quarantine"])) == [str(folder / "broken.jpg")]


def found_in(directory: str) -> dict[str, Any]:
    """The labels, or what is wrong, by image."""
    return dict(json.loads(in_jobs_environment(LABELLED, directory)))


def runs(api: Api) -> list[str]:
    """The runs of the DAG."""
    return [run["dag_run_id"] for run in api.get("dags", DAG, "dagRuns")["dag_runs"]]
