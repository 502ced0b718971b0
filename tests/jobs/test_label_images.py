"""The job `predict` on images: what is labelled, what goes to quarantine, and what a rerun does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from bad_server import serving
from image_files import DAISY, PALACE, broken, kinds
from job_runs import notes, run_in

from predict import predict_rows
from trainyard import scorable
from trainyard.errors import JobError, SettingError
from trainyard.images.decoding import decode
from trainyard.images.reading import image_batches
from trainyard.models import StoredModel, resolve_model
from trainyard.rundir import read_events
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Predict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODEL = "package:efficientnet_lite0"


def labelled(
    spark: SparkSession, run_dir: Path, source: Path | str, claim: int = 1, **settings: Any
) -> dict[str, Any]:
    given = {"model": MODEL, "top_k": 3, **settings}
    spec = Predict(run_dir=str(run_dir), source=str(source), **given)
    with unwrapped():
        return predict_rows(spark, spec, run_in(run_dir, claim))


def rows_in(directory: Path) -> dict[str, dict[str, Any]]:
    """The rows of predictions or of the quarantine by file name."""
    table = pq.read_table(directory)
    found = {Path(row["key"]).name: row for row in table.to_pylist()}
    assert len(found) == table.num_rows, "a row is there twice"
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of image, good and bad."""
    made = tmp_path_factory.mktemp("photographs")
    for name, data in (kinds() | broken()).items():
        # A name says nothing.
        (made / f"{name}.jpg").write_bytes(data)
    (made / "palace.txt").write_bytes(PALACE.read_bytes())
    return made


@pytest.fixture(scope="module")
def run_dir(spark: SparkSession, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on `folder`."""
    made = tmp_path_factory.mktemp("run")
    result = labelled(spark, made, folder, bad_rows=0.5)
    (made / "result.json").write_text(json.dumps(result))
    return made


def result_of(run_dir: Path) -> dict[str, Any]:
    return dict(json.loads((run_dir / "result.json").read_text()))


def test_images_in_are_labelled_or_in_quarantine(run_dir: Path, folder: Path) -> None:
    good, bad = rows_in(run_dir / "predictions"), rows_in(run_dir / "quarantine")
    assert set(good) == {f"{name}.jpg" for name in kinds()} | {"palace.txt"}
    assert {name: row["reason"] for name, row in bad.items()} == {
        "empty.jpg": "the image is empty",
        "truncated.jpg": "the image is truncated",
        "truncated_png.jpg": "the image is truncated",
        "text.jpg": "it is no image (JPEG, PNG, GIF, BMP, DIB, TIFF, WEBP, PPM, JPEG2000, AVIF)",
        "header_only.jpg": bad["header_only.jpg"]["reason"],
        "bomb.jpg": "the image has more than 89478485 pixels",
        "postscript.jpg": bad["text.jpg"]["reason"],
    }
    rows = result_of(run_dir)["rows"]
    assert rows == {"in": len(good) + len(bad), "out": len(good), "quarantined": len(bad)}


def test_what_the_photographs_show_is_named(run_dir: Path) -> None:
    good = rows_in(run_dir / "predictions")
    assert good["palace.txt"]["prediction"] == "palace"
    coloured = [name for name in good if not name.startswith(("grey", "palace"))]
    assert {good[name]["prediction"] for name in coloured} == {"daisy"}
    for row in good.values():
        assert len(set(row["labels"])) == len(row["probabilities"]) == 3
        assert row["prediction"] == row["labels"][0]
        assert row["probabilities"] == sorted(row["probabilities"], reverse=True)
        assert (row["model_name"], row["model_version"]) == ("efficientnet_lite0", "0.1.0")


def test_the_labels_are_those_of_the_network_run_plainly(run_dir: Path) -> None:
    model = StoredModel.read(resolve_model(MODEL)[0])
    rows = rows_in(run_dir / "predictions")
    for kind, data in kinds().items():
        image = torch.tensor(decode(data, 224, 224, 0.875)).permute(2, 0, 1).float()
        with torch.inference_mode():
            best = model.build()((image[None] - 127) / 128).double().softmax(1)[0].topk(3)
        row = rows[f"{kind}.jpg"]
        assert row["labels"] == [model.meta.classes[number] for number in best.indices]
        assert np.allclose(row["probabilities"], best.values, rtol=0, atol=1e-6)


def test_progress_says_how_fast_and_how_many_are_bad(run_dir: Path) -> None:
    events = [e for e in read_events(str(run_dir), {}) if e["kind"] == "progress"]
    last = events[-1]
    assert last["done"] == last["total"] == result_of(run_dir)["rows"]["in"]
    assert last["unit"] == "images"
    assert last["figures"]["quarantined"] == len(broken())
    assert last["figures"]["images per second"] > 0


class TestBudget:
    def test_too_many_fail_the_run_when_the_others_are_labelled(
        self, spark: SparkSession, folder: Path, tmp_path: Path
    ) -> None:
        """And a larger budget takes over what is there."""
        with pytest.raises(JobError, match=r"7 of 20 rows .*allows 0.1 x 20 = 2"):
            labelled(spark, tmp_path, folder, bad_rows=0.1)
        before = times(tmp_path)
        assert before
        with pytest.raises(JobError, match="'bad_rows_count' 6"):
            labelled(spark, tmp_path, folder, claim=2, bad_rows=0.5, bad_rows_count=6)
        result = labelled(spark, tmp_path, folder, claim=3, bad_rows=0.5)
        assert result["rows"]["quarantined"] == 7
        assert times(tmp_path) == before


def times(run_dir: Path) -> dict[str, int]:
    """Each file of the output and when it was written."""
    found = [*run_dir.glob("predictions/*.parquet"), *run_dir.glob("quarantine/*.parquet")]
    return {path.name: path.stat().st_mtime_ns for path in found}


def test_an_interrupted_run_ends_as_an_undisturbed_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker is killed in its midst; then the folder changes. tests/faults kills more."""
    monkeypatch.setattr("predict._PART_IMAGES", 4)
    folder, whole, torn = (tmp_path / name for name in ("folder", "whole", "torn"))
    folder.mkdir()
    for number in range(16):
        data = kinds()["webp"] if number % 2 else kinds()["jpeg"]
        (folder / f"{number:02}.jpg").write_bytes(b"" if number % 5 == 3 else data)
    settings: dict[str, Any] = {"bad_rows": 0.2, "batch_size": 4}
    labelled(spark, whole, folder, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(scorable, "image_batches", dying(image_batches, torn, 1))
        with pytest.raises(Exception, match="Python worker exited unexpectedly"):
            labelled(spark, torn, folder, **settings)
    kept, before = committed(torn), times(torn)
    assert 1 <= len(kept) < 4
    # Other memory would give other batches, but for the plan.
    labelled(spark, torn, folder, claim=2, batch_memory=10, **settings)
    after = times(torn)
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    for directory in ("predictions", "quarantine"):
        one, other = rows_in(whole / directory), rows_in(torn / directory)
        assert one.keys() == other.keys()
        for name, row in one.items():
            assert row.get("labels") == other[name].get("labels")
            assert row.get("reason") == other[name].get("reason")
            mine, theirs = (found.get("probabilities", []) for found in (row, other[name]))
            assert np.allclose(mine, theirs, rtol=0, atol=1e-6)

    (folder / "16.jpg").write_bytes(kinds()["png"])
    assert labelled(spark, torn, folder, claim=3, **settings)["rows"]["in"] == 17
    assert not after.keys() & times(torn).keys()
    assert any("every part is made anew" in note for note in notes(torn))


def committed(run_dir: Path) -> set[str]:
    """The files of the parts that are committed."""
    entries = [json.loads(path.read_text()) for path in run_dir.glob("commits/*/0*.json")]
    return {entry["path"] for entry in entries}


def dying(batches: Any, run_dir: Path, after: int) -> Any:
    """Image batches in whose midst the worker is killed, once so many parts are committed."""

    def die(*arguments: Any) -> Iterator[Any]:
        for batch in batches(*arguments):
            yield batch
            if len(list(run_dir.glob("commits/*/0*.json"))) >= after:
                os.kill(os.getpid(), 9)

    return die


def test_nothing_but_bad_images_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    for name, data in broken().items():
        (folder / name).write_bytes(data)
    result = labelled(spark, tmp_path / "run", folder, bad_rows=1.0, top_k=1000)
    assert result["rows"] == {"in": len(broken()), "out": 0, "quarantined": len(broken())}
    table = pq.read_table(result["outputs"]["predictions"])
    assert (table.num_rows, table.column_names[:4]) == (
        0,
        ["key", "prediction", "labels", "probabilities"],
    )


def test_a_list_of_urls_and_paths(spark: SparkSession, tmp_path: Path) -> None:
    with serving() as server:
        names = [server.url(way) for way in ("good", "moved", "missing", "silent", "page", "cut")]
        lines = [*names, str(DAISY), str(tmp_path / "vanished.jpg"), "http://127.0.0.1:1/x", ""]
        lines.append(f"http://me:secret@{server.host}/good?2")
        lines.append(f"http://{server.host}/page?signature")
        (tmp_path / "list.txt").write_text("\r\n".join([*lines, names[0]]))
        allowed: dict[str, Any] = {
            "allowed_hosts": (server.host,),
            "bad_rows": 0.8,
            "url_timeout": 0.5,
            "url_retries": 1,
        }
        result = labelled(spark, tmp_path / "run", tmp_path / "list.txt", **allowed)
        assert result["rows"] == {"in": 11, "out": 3, "quarantined": 8}
        assert not any("signature" in note for note in notes(tmp_path / "run"))
        check_nothing_holds(tmp_path / "run", "secret")
        good, bad = rows_in(tmp_path / "run/predictions"), rows_in(tmp_path / "run/quarantine")
    assert {row["prediction"] for row in good.values()} == {"daisy"}
    assert {name: row["reason"] for name, row in bad.items()} == {
        "missing": "the answer is status 404",
        "silent": "no answer within 0.5 s",
        "page": "the answer is text/html, no image",
        "page?signature": "the answer is text/html, no image",
        "cut": "the answer was cut off",
        "vanished.jpg": "nothing is there",
        "x": "the URL's host is not in 'allowed_hosts'",
        "good?2": "the URL holds a password",
    }


def check_nothing_holds(directory: Path, text: str) -> None:
    for path in directory.rglob("*"):
        assert path.is_dir() or text.encode() not in path.read_bytes(), path


class TestErrors:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"top_k": 1001}, "'top_k' is 1001: the model has 1000 classes"),
            ({"model": "package:efficientnet"}, "Did you mean 'efficientnet_lite0'"),
            ({"split": "test"}, "takes images, and no prepared dataset"),
            ({"source": "/no/such/*.jpg"}, "names no image"),
        ],
    )
    def test_what_cannot_work_is_said_first(
        self, spark: SparkSession, folder: Path, tmp_path: Path, settings: Any, message: str
    ) -> None:
        given = {"source": folder, **settings}
        with pytest.raises(JobError, match=message):
            labelled(spark, tmp_path, **given)

    @pytest.mark.parametrize(
        "host",
        ["https://host", "a b", "me@host", "host/", "host:", "host:99999", "*host", "*.*", "*.::1"],
    )
    def test_a_host_is_no_url(self, host: str) -> None:
        with pytest.raises(SettingError, match="is no host"):
            Predict(run_dir="/r", source="/s", model=MODEL, allowed_hosts=(host,))
