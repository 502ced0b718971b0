"""The models' pages: what the registry and the run directories know, to whoever may know it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.pages import DAG, RUN, Site, write_evaluation, write_result, write_training

from trainyard import champions, registry
from trainyard.layout import run_directory, safe_name
from trainyard.tracking import RUN_DIR_TAG


class Models:
    """A registry with two versions of a model that a DAG's runs made, and one made elsewhere."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.client = registry.client()
        self.experiment = self.client.create_experiment(
            "mnist", artifact_location="file:///tmp/none"
        )
        self.client.create_registered_model("mnist")
        site.add_run()
        site.add_run(run_id="another")
        self.first = self.version(RUN, accuracy=0.96, epochs="30", seed="7")
        self.second = self.version("another", accuracy=0.97, epochs="30", seed="8")
        champions.promote("mnist", "2", known=None, who="mnist_horovod another", why="it is better")
        self.client.create_registered_model("elsewhere")
        self.client.create_model_version(
            "elsewhere", "file:///tmp/none", tags={RUN_DIR_TAG: "/x/y/z"}
        )

    def version(self, run_id: str, *, accuracy: float, **params: str) -> str:
        """Register a version whose run has trained, evaluated and predicted."""
        train = self.site.add_task("train", run_id=run_id)
        write_training(train, 4)
        write_result(train, "train_horovod", rows={"train": 3483}, metrics={"best_epoch": 3})
        number = "1" if run_id == RUN else "2"
        write_evaluation(self.site.add_task("evaluate", run_id=run_id), number, accuracy=accuracy)
        predicted = self.site.add_task("predict", run_id=run_id)
        model = {"name": "mnist", "version": number}
        write_result(predicted, "predict", model=model, rows={"in": 10, "out": 10})
        run = self.client.create_run(self.experiment)
        self.client.log_metric(run.info.run_id, "test_accuracy", accuracy)
        for name, value in params.items():
            self.client.log_param(run.info.run_id, name, value)
        tags = {RUN_DIR_TAG: train, "trainyard.dataset": "f8e6"}
        self.client.create_model_version("mnist", "file:///tmp/none", run.info.run_id, tags=tags)
        return train


@pytest.fixture(scope="module")
def empty_registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry's database, of which each test has a copy: to make one takes seconds."""
    made = tmp_path_factory.mktemp("registry") / "mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{made}")
        registry.client().search_experiments()
    return made


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_registry: Path) -> Models:
    shutil.copy(empty_registry, tmp_path / "mlflow.db")
    return Models(Site(tmp_path, monkeypatch))


def test_pages_of_models(models: Models) -> None:
    site = models.site
    shown = {model["name"]: model["versions"] for model in site.get("/models")["models"]}
    assert list(shown) == ["elsewhere", "mnist"]
    assert [version["version"] for version in shown["mnist"]] == ["2", "1"]
    assert shown["mnist"][0]["aliases"] == ["champion"]
    assert shown["mnist"][0]["headline"]["value"] == 0.97
    assert shown["mnist"][0]["promoted"]["why"] == "it is better"

    made = {v["version"]: v["made_by"] for v in site.get("/models/mnist")["versions"]}
    assert made["1"] == {"dag_id": DAG, "run_id": RUN}

    version = site.get("/models/mnist/versions/1")
    assert version["params"] == {"epochs": "30", "seed": "7"}
    assert version["evaluation"]["metrics"]["accuracy"]["value"] == 0.96
    assert version["predictions"][0]["run"] == {"dag_id": DAG, "run_id": RUN}
    assert version["curves"]["curves"]["loss"][0] == [1, 2, 3, 4]
    assert version["curves"]["best"] == 3
    assert version["mlflow"]["url"] is None

    both = site.get("/models/mnist/compare?a=1&b=2")
    assert both["differing"] == [{"name": "seed", "a": "7", "b": "8"}]
    assert (both["a"]["version"], both["b"]["version"]) == ("1", "2")

    for path in ("/models/none", "/models/mnist/versions/9", "/models/mnist/compare?a=1&b=9"):
        assert site.browser().get(f"/trainyard/api{path}").status_code == 404
    for path in ("/models", "/models/mnist", "/models/mnist/versions/1"):
        assert site.browser(None).get(f"/trainyard/api{path}").status_code == 401

    # Who reads this DAG alone sees what its runs made and not what no run did; others see nothing.
    names = [model["name"] for model in site.get("/models", "mnist")["models"]]
    assert names == ["mnist"]
    assert site.get("/models", "flights")["models"] == []
    assert site.get("/models", "lister")["models"] == []
    for path in ("/models/mnist", "/models/mnist/versions/1", "/models/mnist/compare?a=1&b=2"):
        assert site.browser("flights").get(f"/trainyard/api{path}").status_code == 404
        assert site.browser("mnist").get(f"/trainyard/api{path}").status_code == 200


def test_versions_are_told_by_the_metric_of_the_gate(models: Models) -> None:
    run = str(models.client.get_model_version("mnist", "1").run_id)
    for name, value in (("test_roc_auc", 0.5), ("test_log_loss", float("nan"))):
        models.client.log_metric(run, name, value)
    told = models.site.get("/models/mnist")["versions"]
    assert [version["headline"]["metric"] for version in told] == ["accuracy", "accuracy"]
    for metric, shown in (("roc_auc", "roc_auc"), ("log_loss", "accuracy")):
        judged = registry.resolve("models:/mnist/2")
        champions.record_verdict(judged, "it stays", {"metric": metric})
        versions = {v["version"]: v for v in models.site.get("/models/mnist")["versions"]}
        assert versions["1"]["headline"]["metric"] == shown
        assert versions["2"]["headline"]["metric"] == "accuracy", "it has no other"
        listed = {m["name"]: m["versions"] for m in models.site.get("/models")["models"]}
        assert listed["mnist"][1]["headline"] == versions["1"]["headline"]
    details = models.site.get("/models/mnist/versions/1")
    assert details["metrics"]["test_log_loss"] is None


def test_predictions_are_looked_for_in_the_runs_that_began_last(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard_airflow.ui.models.MOST_RUNS", 2)
    for at, run_id in enumerate(["zz", "aa", "bb"], start=1):
        models.site.add_run(run_id=run_id, at=at)
        predicted = models.site.add_task("predict", run_id=run_id)
        model = {"name": "mnist", "version": "1"}
        write_result(predicted, "predict", model=model, rows={"out": 10})
    used = models.site.get("/models/mnist/versions/1")["predictions"]
    assert [each["run"]["run_id"] for each in used] == [RUN, "bb", "aa"]


def test_a_version_is_shown_whatever_became_of_what_it_is_from(models: Models) -> None:
    models.client.delete_run(str(models.client.get_model_version("mnist", "1").run_id))
    for result in (b"[]", b'{"job": "evaluate", "model": {"name": "mnist", "version": "1"}}'):
        for task in ("evaluate", "predict", "train"):
            run_dir = run_directory(
                models.site.root, dag_id=DAG, run_id=RUN, task_id=task, generation=2
            )
            Path(run_dir, "result.json").write_bytes(result)
        models.site.get("/models/mnist/versions/1")
    version = models.site.get("/models/mnist/versions/1")
    assert (version["params"], version["headline"]) == ({}, None)


@pytest.mark.timeout(30)
def test_a_registry_that_does_not_answer_is_no_secret_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, monkeypatch)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:hunter2@127.0.0.1:9")
    answer = site.browser().get("/trainyard/api/models")
    assert answer.status_code == 503
    assert "hunter2" not in answer.text
    assert "127.0.0.1" not in answer.text


def test_names_of_directories_do_not_give_a_dag_away(models: Models) -> None:
    odd = run_directory(models.site.root, dag_id="a dag", run_id="r", task_id="train")
    assert safe_name("a dag") != "a dag"
    models.client.create_registered_model("odd")
    models.client.create_model_version("odd", "file:///tmp/none", tags={RUN_DIR_TAG: odd})
    seen: Any = models.site.get("/models", "mnist")["models"]
    assert [model["name"] for model in seen] == ["mnist"]
