"""The registry on SQLite: aliases are what was set, and what is not there is said or is None."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from made_datasets import write_dataset
from tiny_models import store_linear

from trainyard import champions, registry
from trainyard.errors import JobError
from trainyard.models import StoredModel, resolve_model

NAME = "tiny"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with two versions of one model."""
    root = tmp_path_factory.mktemp("registry")
    rows = np.zeros((3, 2), np.float32)
    dataset = write_dataset(root / "data", {"test": (rows, np.arange(3))}, classes=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(registry.TRACKING_URI, f"sqlite:///{root}/made/here/mlflow.db")
        mlflow = registry.client()
        experiment = mlflow.create_experiment("tests", artifact_location=str(root / "artifacts"))
        mlflow.create_registered_model(NAME)
        for version in (1, 2):
            directory = store_linear(
                root / str(version), dataset, torch.full((3, 2), float(version))
            )
            run = mlflow.create_run(experiment)
            mlflow.log_artifacts(run.info.run_id, directory, "model")
            mlflow.create_model_version(NAME, f"{run.info.artifact_uri}/model", run.info.run_id)
    return root


@pytest.fixture(autouse=True)
def tracking_uri(store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    uri = f"sqlite:///{store}/made/here/mlflow.db"
    monkeypatch.setenv(registry.TRACKING_URI, uri)
    return uri


def test_an_alias_that_nobody_set_is_none() -> None:
    assert registry.find_alias(NAME, "nobody") is None
    assert registry.find_alias("no_model", "champion") is None
    assert registry.find_version(NAME, "99") is None
    assert registry.find(f"models:/{NAME}@nobody") is None


def promote(version: str, known: str | None) -> champions.Change:
    return champions.promote(NAME, version, known=known, who="a test", why="it says so")


def test_promotion_and_rollback() -> None:
    known = None
    for version in ("2", "1", "2"):
        change = promote(version, known)
        assert change.champion.uri == f"models:/{NAME}/{version}"
        assert champions.serving(NAME) == change.champion
        assert (change.before and change.before.version) == known
        assert change.champion.run_id is not None
        assert champions.previous(NAME) == known
        known = version


def test_another_champion_than_the_known_one_stays() -> None:
    now = champions.serving(NAME)
    assert now is not None
    other = "1" if now.version == "2" else "2"
    for known in (None, "7"):
        with pytest.raises(JobError, match=f"champion of {NAME} is version {now.version}, not"):
            promote(other, known)
    assert champions.serving(NAME) == now


def test_a_version_that_is_not_there_is_not_promoted() -> None:
    before = champions.serving(NAME)
    assert before is not None
    with pytest.raises(JobError, match=rf"'models:/{NAME}/99': sqlite:///.* has no such version"):
        promote("99", before.version)
    assert champions.serving(NAME) == before


def test_an_alias_that_someone_else_changes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    other = registry.set_alias(NAME, "raced", "1")
    monkeypatch.setattr(registry, "find_alias", lambda name, alias: other)
    with pytest.raises(JobError, match="set to version 2 and then read as 1"):
        registry.set_alias(NAME, "raced", "2")


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_registered_model_is_the_stored_one(store: Path, version: str) -> None:
    registry.set_alias(NAME, "wanted", version)
    directory, identity = resolve_model(f"models:/{NAME}@wanted")
    assert (identity.uri, identity.name, identity.version) == (
        f"models:/{NAME}/{version}",
        NAME,
        version,
    )
    found, stored = StoredModel.read(directory), StoredModel.read(str(store / version))
    assert (found.meta, found.weights) == (stored.meta, stored.weights)
    assert resolve_model(f"models:/{NAME}/{version}")[0] == directory


@pytest.mark.parametrize("uri", ["models:/a", "models:/a/b/1", "models:/a/latest", "models:a@b"])
def test_a_uri_of_another_form(uri: str) -> None:
    with pytest.raises(JobError, match="no registered model's URI"):
        resolve_model(uri)


def test_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(registry.TRACKING_URI)
    with pytest.raises(JobError, match="MLFLOW_TRACKING_URI is not set"):
        registry.find_alias(NAME, "champion")


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch, tracking_uri: str) -> None:
    monkeypatch.setattr(registry, "find", lambda uri: None)
    monkeypatch.setenv(registry.TRACKING_URI, "http://user:secret@host:5000")
    with pytest.raises(JobError) as caught:
        registry.resolve(f"models:/{NAME}/1")
    assert "http://host:5000" in str(caught.value)
    assert "secret" not in str(caught.value)


FIRST_USE = """
from trainyard import champions, registry
print(registry.find_alias("tiny", "champion"))
"""


def test_first_use_by_several_processes_at_once(tmp_path: Path) -> None:
    environment = {
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/new/mlflow.db",
        "PYTHONPATH": str(Path(registry.__file__).parents[1]),
        "PATH": "/usr/bin:/bin",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", FIRST_USE],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    ended = [process.communicate(timeout=100) for process in started]
    assert [(p.returncode, out) for p, (out, _) in zip(started, ended, strict=True)] == [
        (0, "None\n")
    ] * 3, ended
    assert "INFO" not in "".join(error for _, error in ended)


def test_importing_it_leaves_mlflow_out() -> None:
    program = (
        "import sys, trainyard.registry; print(sorted({'mlflow', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n"
