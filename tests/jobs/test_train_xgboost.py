"""XGBoost's workers in real Spark tasks, and its models in every other job."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost as xgb
from boosted import KINDS, NATIVE, native, real_dataset, real_rows, spec_of, trees
from job_runs import notes, run_in
from made_datasets import write_dataset
from prepared_tables import all_rows, prepared, refusal, table
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error

import train_horovod
import train_xgboost
from evaluate import evaluate_model
from predict import predict_rows
from train_xgboost import launch_in
from trainyard import registry
from trainyard.barrier.engine import LaunchSettings
from trainyard.barrier.failures import LostRankError
from trainyard.barrier.launch import BarrierLauncher, run_again
from trainyard.dataset import Dataset
from trainyard.errors import JobError, SettingError
from trainyard.models import StoredModel, resolve_model
from trainyard.scoring import Scorer
from trainyard.sparkerrors import unwrapped
from trainyard.specs import Evaluate, Predict, TrainHorovod, TrainXGBoost
from trainyard.xgboost.booster import from_bytes
from trainyard.xgboost.engine import CollectiveError, XGBoostEngine, explained
from trainyard.xgboost.history import TrainResult
from trainyard.xgboost.train import train

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def launched(
    spark: SparkSession, run_dir: Path, dataset: Dataset, **settings: Any
) -> tuple[xgb.Booster, TrainResult]:
    run_dir.mkdir(exist_ok=True)
    spec = spec_of(run_dir, dataset, **{"num_workers": 2, **settings})
    result = launch_in(spark.sparkContext, spec, dataset, run_in(run_dir))
    assert result.booster is not None
    return from_bytes(result.booster), result


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return real_dataset(tmp_path_factory.mktemp("binary"), "binary")


MEASURES: dict[str, tuple[str, Callable[..., float]]] = {
    "binary": ("logloss", log_loss),
    "multiclass": ("mlogloss", log_loss),
    "regression": ("rmse", root_mean_squared_error),
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_workers_learn_what_native_xgboost_does(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    booster, result = launched(
        spark, tmp_path / "run", real_dataset(tmp_path / "data", kind), num_workers=None
    )
    assert result.workers == 2
    rows, (metric, measure) = real_rows(kind), MEASURES[kind]
    # What a round says is of the rows of both workers.
    for split, prefix in (("train", ""), ("validation", "validation_")):
        features, labels = rows[split]
        own = measure(labels, booster.inplace_predict(features))
        assert result.history[-1].figures[prefix + metric] == pytest.approx(own, rel=1e-4)
    theirs, _ = native(rows, NATIVE[kind])
    features, labels = rows["test"]
    scores = [measure(labels, b.inplace_predict(features)) for b in (booster, theirs)]
    assert scores[0] == pytest.approx(scores[1], rel=0.1)


def test_early_stopping_goes_by_the_rows_of_all_workers(
    spark: SparkSession, binary: Dataset, tmp_path: Path
) -> None:
    booster, result = launched(
        spark, tmp_path, binary, metrics="logloss,auc", early_stopping_rounds=3, rounds=60
    )
    features, labels = real_rows("binary")["validation"]
    areas = [
        roc_auc_score(
            labels, booster.inplace_predict(features, iteration_range=(0, n), predict_type="margin")
        )
        for n in range(1, result.best.number + 1)
    ]
    told = [done.figures["validation_auc"] for done in result.history]
    assert told[: result.best.number] == pytest.approx(areas, abs=1e-6)
    assert result.best.number == int(np.argmax(told)) + 1 < len(told) < 60
    assert booster.num_boosted_rounds() == result.best.number


def test_base_margins_and_weights_of_several_workers(spark: SparkSession, tmp_path: Path) -> None:
    rows, rng = real_rows("binary"), np.random.default_rng(0)
    margins = {s: rng.normal(size=(len(r[1]), 1)) for s, r in rows.items()}
    weights = {s: rng.uniform(0.1, 2, len(r[1])) for s, r in rows.items()}
    dataset = real_dataset(
        tmp_path / "data",
        "binary",
        margins={s: m.tolist() for s, m in margins.items()},
        weights={s: w.tolist() for s, w in weights.items()},
    )
    booster, result = launched(spark, tmp_path / "run", dataset)
    features, labels = rows["validation"]
    scores = booster.inplace_predict(features, base_margin=margins["validation"])
    loss = log_loss(labels, scores, sample_weight=weights["validation"])
    assert result.best.figures["validation_logloss"] == pytest.approx(loss, rel=1e-4)


def test_one_class_in_one_partition_trains(spark: SparkSession, tmp_path: Path) -> None:
    features, labels = real_rows("binary")["train"]
    order = np.argsort(labels, kind="stable")[: 2 * int((labels == 0).sum())]
    splits = {"train": (features[order], labels[order])}
    dataset = write_dataset(tmp_path / "data", splits, classes=2, row_group_rows=30)
    half = len(order) // 2
    assert set(labels[order[:half]]) == {0}
    assert set(labels[order[half:]]) == {1}
    booster, _ = launched(spark, tmp_path / "run", dataset)
    assert roc_auc_score(*scored(booster, features, labels)) > 0.99


def scored(booster: xgb.Booster, features: Any, labels: Any) -> tuple[Any, Any]:
    return labels, booster.inplace_predict(features)


def test_a_worker_without_rows_trains_along(
    spark: SparkSession, binary: Dataset, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, binary, num_workers=2)

    def fn() -> TrainResult:
        from unittest import mock

        def bounds(rows: int, rank: int, size: int) -> tuple[int, int]:
            return (0, rows) if rank == 0 else (rows, rows)

        with mock.patch("trainyard.xgboost.rows.bounds", bounds):
            return train(spec, binary, claim=1)

    first, second = launcher_of(spark, tmp_path).run(fn, 2)
    assert second.history == first.history
    assert first.booster is not None
    assert trees(from_bytes(first.booster)) == trees(
        native(real_rows("binary"), NATIVE["binary"])[0]
    )


def launcher_of(spark: SparkSession, run_dir: Path, stall_timeout: int = 60) -> BarrierLauncher:
    settings = LaunchSettings(
        run_dir=str(run_dir), claim=1, start_timeout=60, stall_timeout=stall_timeout
    )
    engine = XGBoostEngine(start_timeout=60, stall_timeout=stall_timeout)
    return BarrierLauncher(spark.sparkContext, settings, engine)


class TestFaults:
    def test_a_killed_worker_is_started_again_and_it_ends_the_same(
        self, spark: SparkSession, binary: Dataset, tmp_path: Path
    ) -> None:
        settings = {"rounds": 14, "checkpoint_every": 4, "booster_params": {"subsample": 0.7}}
        whole = launched(spark, tmp_path / "whole", binary, **settings)[1]
        spec = spec_of(tmp_path / "run", binary, num_workers=2, **settings)
        (tmp_path / "run").mkdir()

        def fn(launch: int) -> Callable[[], TrainResult]:
            def body() -> TrainResult:
                from trainyard.xgboost import train as module

                if launch == 1 and xgb.collective.get_rank() == 1:
                    kept = module._Training.after_round

                    def die(self: Any, trees: Any, log: Any) -> bool:
                        if len(self.history) == 9:
                            os.kill(os.getpid(), signal.SIGKILL)
                        return kept(self, trees, log)

                    module._Training.after_round = die  # type: ignore[method-assign]
                return module.train(spec, binary, claim=1, launch=launch)

            return body

        told: list[str] = []
        first = run_again(launcher_of(spark, tmp_path / "run"), fn, 2, 1, told.append)[0]
        assert "rank 1 (process" in told[0]
        assert "was killed" in told[0]
        assert first.resumed == 8
        assert first.history == whole.history
        assert first.booster is not None
        assert whole.booster is not None
        resumed, undisturbed = from_bytes(first.booster), from_bytes(whole.booster)
        assert resumed.get_dump() == undisturbed.get_dump()
        features = real_rows("binary")["test"][0]
        assert np.array_equal(
            resumed.inplace_predict(features), undisturbed.inplace_predict(features)
        )

    def test_a_worker_that_does_not_answer_is_named(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        def fn() -> None:
            from xgboost import collective

            if collective.get_rank() == 1:
                time.sleep(60)
            collective.allreduce(np.ones(3), collective.Op.SUM)

        with pytest.raises(LostRankError, match="rank 1 of 2 did not answer for stall_timeout = 5"):
            launcher_of(spark, tmp_path, stall_timeout=5).run(fn, 2)

    def test_a_workers_own_error_is_the_jobs(self, spark: SparkSession, tmp_path: Path) -> None:
        features, labels = real_rows("binary")["train"]
        same = write_dataset(tmp_path / "d", {"train": (features, labels * 0)}, classes=2)
        with pytest.raises(JobError, match="training rows have the label 0: there is nothing"):
            launched(spark, tmp_path / "run", same)

    def test_more_workers_than_slots(
        self, spark: SparkSession, binary: Dataset, tmp_path: Path
    ) -> None:
        with pytest.raises(SettingError, match="has 2 slots") as caught:
            launched(spark, tmp_path, binary, num_workers=3)
        assert caught.value.name == "num_workers"
        assert caught.value.fix.startswith("Set num_workers to 2 or less")

    def test_a_tracker_that_cannot_be_reached(self) -> None:
        program = (
            "from trainyard.barrier.engine import assign\n"
            "from trainyard.xgboost.engine import XGBoostMember\n"
            "member = XGBoostMember(host='127.0.0.1', port=1, timeout=10)\n"
            "try:\n"
            "    with member.joined(assign(['h'])[0], '127.0.0.1'): pass\n"
            "except Exception as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
        assert "cannot reach XGBoost's tracker at 127.0.0.1:1: " in done.stdout
        assert "Connection refused" in done.stdout
        assert "spark.driver.host" in done.stdout

    def test_what_xgboosts_errors_mean(self) -> None:
        error = xgb.core.XGBoostError("a/nccl.cc:1: NCCL failure: unhandled system error")
        found = explained(error)
        assert isinstance(found, JobError)
        assert "spark.executorEnv.NCCL_SOCKET_IFNAME" in found.fix
        text = (
            "src/collective/result.cc:83: [a:1]: \n- [socket.h:79|0:0]: Poll timeout.\nStack trace:"
        )
        lost = explained(xgb.core.XGBoostError(text))
        assert isinstance(lost, CollectiveError)
        assert str(lost) == "Poll timeout"
        other = xgb.core.XGBoostError("objective.cc: Unknown objective")
        assert explained(other) is other


def flights(rows: int = 400) -> pa.Table:
    """A label that a number with gaps and a category decide on; columns with difficult names."""
    rng = np.random.default_rng(0)
    delay = rng.normal(size=rows)
    carrier = rng.choice(["AA", "B6", "UA", "WN"], rows)
    noise = rng.normal(size=rows)
    late = (delay + 2 * (carrier == "B6") - (carrier == "UA") + noise / 2 > 0.4).astype(int)
    gaps = rng.random(rows)
    return table(
        rows,
        id=np.arange(rows),
        **{"dep.delay [min]": pa.array(np.where(gaps < 0.2, np.nan, delay))},
        features=pa.array(
            [None if g > 0.9 else float(v) for g, v in zip(gaps, noise, strict=True)]
        ),
        carrier=pa.array([None if g > 0.95 else c for g, c in zip(gaps, carrier, strict=True)]),
        late=late,
        minutes=delay * 10 + noise,
        start=rng.normal(size=rows),
        validates=rng.random(rows) < 0.2,
        part=rng.choice(["train", "validation", "test"], rows, p=[0.6, 0.2, 0.2]),
    )


PREPARE: dict[str, Any] = {
    "features": ("dep.delay [min]", "features", "carrier"),
    "categorical": ("carrier",),
    "label": "late",
    "imputation": "keep",
    "encoding": "index",
    "split_by": "column",
    "split_column": "part",
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


Trained = tuple[Path, Dataset, dict[str, Any]]


@pytest.fixture(scope="module", params=["late", "minutes"])
def trained(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Trained:
    """A whole job's result on a table with gaps, categories and base margins, for each task."""
    label = str(request.param)
    root = tmp_path_factory.mktemp(label)
    task = "regression" if label == "minutes" else "classification"
    more = {"label": label, "task": task, "base_margin": "start"}
    dataset, _ = prepared(spark, root, flights(), **{**PREPARE, **more})
    return root, dataset, whole_job(spark, root / "train", dataset, database)


def whole_job(
    spark: SparkSession, run_dir: Path, dataset: Dataset, database: str
) -> dict[str, Any]:
    run_dir.mkdir()

    def launch(spec: TrainXGBoost, dataset: Dataset, run: Any) -> TrainResult:
        return launch_in(spark.sparkContext, spec, dataset, run)

    spec = spec_of(run_dir, dataset, num_workers=2, explained_rows=50, early_stopping_rounds=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(registry.TRACKING_URI, database)
        patch.setattr(train_xgboost, "launch", launch)
        return train_xgboost.work(spec, run_in(run_dir))


def predictions(spark: SparkSession, run_dir: Path, source: str, model: str) -> dict[str, Any]:
    spec = Predict(run_dir=str(run_dir), source=source, model=model)
    with unwrapped():
        result = predict_rows(spark, spec, run_in(run_dir))
    rows = pq.read_table(result["outputs"]["predictions"]).to_pylist()
    return {row["key"]: row.get("probabilities") or row["prediction"] for row in rows}


class TestItsModels:
    def test_every_job_predicts_the_same_as_plain_xgboost_and_mlflow(
        self,
        spark: SparkSession,
        trained: Trained,
        database: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        root, dataset, result = trained
        monkeypatch.setenv(registry.TRACKING_URI, database)
        ours = predictions(spark, tmp_path / "1", dataset.directory, result["outputs"]["model"])
        uri = result["outputs"]["model_uri"]
        raw = predictions(spark, tmp_path / "2", str(root / "source.parquet"), uri)
        assert raw == ours
        assert len(ours) == 400

        import mlflow
        import mlflow.xgboost

        mlflow.set_tracking_uri(database)
        plain = xgb.Booster()
        plain.load_model(root / "train" / "model" / "model.ubj")
        rows = all_rows(dataset)
        features = np.array([rows[key]["features"] for key in ours], np.float32)
        margins = np.array([rows[key]["margin"] for key in ours])
        assert np.isnan(features[:, 0]).any()
        assert np.isnan(features[:, 2]).any()
        matrix = xgb.DMatrix(
            features,
            base_margin=margins,
            feature_types=["q", "q", "c"],
            enable_categorical=True,
        )
        values = np.array(list(ours.values()))
        told = values if values.ndim == 1 else values[:, 1]
        for booster in (plain, mlflow.xgboost.load_model(uri)):
            assert np.allclose(booster.predict(matrix), told, atol=1e-6)
            assert booster.num_boosted_rounds() == result["metrics"]["best_round"]

    def test_evaluate_judges_it_beside_a_champion(
        self,
        spark: SparkSession,
        trained: Trained,
        database: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        _, dataset, result = trained
        monkeypatch.setenv(registry.TRACKING_URI, database)
        spec = Evaluate(
            run_dir=str(tmp_path),
            dataset=dataset.directory,
            model=result["outputs"]["model_uri"],
            champion="models:/test@challenger",
            bootstrap_samples=100,
            split="validation",
        )
        if dataset.task == "regression":
            judged = evaluate_model(spark, spec, run_in(tmp_path))
            told = result["metrics"]["validation_rmse"]
            assert judged["metrics"]["rmse"]["value"] == pytest.approx(told, rel=1e-4)
            return
        spec = Evaluate.from_mapping(spec.to_mapping() | {"champion": spec.model})
        judged = evaluate_model(spark, spec, run_in(tmp_path))
        told = result["metrics"]["validation_logloss"]
        assert judged["metrics"]["log_loss"]["value"] == pytest.approx(told, rel=1e-4)
        assert judged["comparison"]["only_champion"] == 0

    def test_what_mlflow_holds(
        self, trained: Trained, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root, dataset, result = trained
        monkeypatch.setenv(registry.TRACKING_URI, database)
        client, run_id = registry.client(), result["model"]["mlflow_run_id"]
        run = client.get_run(run_id)
        assert run.data.params["best_round"] == str(result["metrics"]["best_round"])
        assert run.data.params["rounds"] == "12"
        metric = "validation_rmse" if dataset.task == "regression" else "validation_logloss"
        assert len(client.get_metric_history(run_id, metric)) == result["metrics"]["rounds"]
        kept = {file.path for file in client.list_artifacts(run_id, "explanation")}
        names = ("importances.csv", "shap.parquet", "shap.png")
        assert kept == {f"explanation/{name}" for name in names}
        assert all((root / "train" / "report" / name).exists() for name in names)
        model = {file.path for file in client.list_artifacts(run_id, "model")}
        assert {"model/MLmodel", "model/model.ubj", "model/meta.json"} <= model
        directory, identity = resolve_model(result["outputs"]["model_uri"])
        stored = StoredModel.read(directory)
        assert stored.meta.engine == "xgboost"
        assert stored.meta.weights_sha256 == result["fingerprints"]["model"]
        assert identity.version == result["model"]["version"]
        assert set(result["features"]) == {"dep.delay [min]", "features", "carrier"}

    def test_a_changed_file_is_not_loaded(self, trained: Trained, tmp_path: Path) -> None:
        root, _, _ = trained
        for name in ("meta.json", "model.ubj"):
            (tmp_path / name).write_bytes((root / "train" / "model" / name).read_bytes())
        found = StoredModel.read(str(tmp_path))
        assert Scorer(found, 8).meta == found.meta
        (tmp_path / "model.ubj").write_bytes(found.weights[:-1] + b"?")
        with pytest.raises(JobError, match="does not have the sha256"):
            StoredModel.read(str(tmp_path))
        meta = json.loads((tmp_path / "meta.json").read_text())
        (tmp_path / "meta.json").write_text(json.dumps({**meta, "engine": "pickle"}))
        with pytest.raises(JobError, match="no engine 'pickle'"):
            StoredModel.read(str(tmp_path))

    def test_a_dataset_without_its_base_margins_is_refused(self, trained: Trained) -> None:
        root, dataset, _ = trained
        meta = StoredModel.read(str(root / "train" / "model")).meta
        meta.check_dataset(dataset)
        with pytest.raises(JobError, match="wants base_margin start"):
            meta.check_dataset(dataclasses.replace(dataset, base_margin=None))


class TestPrepared:
    def test_sparse_and_dense_vectors_give_the_same_trees(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        from pyspark.ml.linalg import Vectors

        features, labels = real_rows("binary")["train"]
        features = np.where(features > np.median(features, axis=0), features, 0)[:, :8]
        found: dict[str, list[str]] = {}
        for form in ("dense", "sparse"):
            rows = [
                (
                    number,
                    Vectors.dense(row.tolist())
                    if form == "dense"
                    else Vectors.sparse(8, {int(i): float(row[i]) for i in np.flatnonzero(row)}),
                    int(label),
                )
                for number, (row, label) in enumerate(zip(features, labels, strict=True))
            ]
            path = tmp_path / f"{form}.parquet"
            spark.createDataFrame(rows, ["id", "v", "y"]).write.parquet(str(path))
            dataset, _ = prepared(spark, tmp_path / form, path, features=("v",), label="y")
            for missing in (None, 0):
                run_dir = tmp_path / f"{form}-{missing}"
                run_dir.mkdir()
                result = train(spec_of(run_dir, dataset, missing=missing), dataset, claim=1)
                assert result.booster is not None
                found[f"{form} {missing}"] = trees(from_bytes(result.booster))
        assert found["sparse None"] == found["dense None"]
        assert found["sparse 0"] == found["dense 0"]
        assert found["sparse 0"] != found["sparse None"]

    def test_gaps_and_categories_stay(self, spark: SparkSession, tmp_path: Path) -> None:
        source = flights(60)
        dataset, _ = prepared(spark, tmp_path, source, **PREPARE)
        assert dataset.preprocessing is not None
        assert dataset.preprocessing.leaves_missing
        rows, given = all_rows(dataset), source.to_pylist()
        train = [given[int(k)]["carrier"] for k, row in rows.items() if row["split"] == "train"]
        codes: dict[str, set[float]] = {}
        for key, row in rows.items():
            was = given[int(key)]
            for place, name in ((0, "dep.delay [min]"), (1, "features")):
                value = was[name]
                if value is None or np.isnan(value):
                    assert np.isnan(row["features"][place])
                else:
                    assert row["features"][place] == pytest.approx(value, rel=1e-6)
            code = row["features"][2]
            if was["carrier"] is None or was["carrier"] not in train:
                assert np.isnan(code)
            else:
                codes.setdefault(was["carrier"], set()).add(code)
        assert sorted(*zip(*codes.values(), strict=True)) == [0.0, 1.0, 2.0, 3.0]

        spec = TrainHorovod(run_dir="r", dataset=dataset.directory, model_name="m")
        with pytest.raises(JobError, match="leaves missing numbers missing"):
            train_horovod.check(spec, dataset)

    def test_a_boolean_says_what_validates(self, spark: SparkSession, tmp_path: Path) -> None:
        source = flights(60)
        by = {**PREPARE, "split_column": "validates"}
        dataset, _ = prepared(spark, tmp_path, source, **by)
        rows = all_rows(dataset)
        flags = source["validates"].to_pylist()
        assert {k: row["split"] for k, row in rows.items()} == {
            str(i): "validation" if flag else "train" for i, flag in enumerate(flags)
        }
        place = source.schema.get_field_index("validates")
        for value, said in ((True, "train split has 0 of 60"), (False, "validation split has 0")):
            same = source.set_column(place, "validates", pa.array([value] * 60))
            assert said in refusal(spark, tmp_path / str(value), same, **by)
        dirty = source.set_column(place, "validates", pa.array([None, *flags[1:]]))
        assert "'validates' is null" in refusal(spark, tmp_path / "null", dirty, **by)
        texts = source.set_column(place, "validates", pa.array(["yes"] * 60))
        assert "none of train, validation, test" in refusal(spark, tmp_path / "t", texts, **by)

    @pytest.mark.parametrize(
        ("values", "problem"),
        [
            ([None] + [0.0] * 59, "base margin 'start' is null"),
            ([float("inf")] + [0.0] * 59, "base margin 'start' is not finite"),
            ([[0.0, 1.0]] * 60, "60 rows have 2 numbers in it"),
            (["x"] * 60, "base margin column 'start' has the type string"),
        ],
    )
    def test_base_margins_that_are_none(
        self, spark: SparkSession, tmp_path: Path, values: list[Any], problem: str
    ) -> None:
        source = flights(60)
        place = source.schema.get_field_index("start")
        source = source.set_column(place, "start", pa.array(values))
        assert problem in refusal(spark, tmp_path, source, **PREPARE, base_margin="start")

    def test_kept_gaps_are_not_scaled(self, spark: SparkSession, tmp_path: Path) -> None:
        said = refusal(spark, tmp_path, flights(60), **PREPARE, scaling="standard")
        assert "'scaling' is 'standard'" in said


def test_fewer_rows_than_workers_are_noted(
    spark: SparkSession, binary: Dataset, tmp_path: Path
) -> None:
    rows = {"train": tuple(part[:1] for part in real_rows("binary")["train"])}
    dataset = write_dataset(tmp_path / "data", rows, classes=2)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="nothing to learn"):
        launched(spark, tmp_path, dataset)
    assert notes(tmp_path)[0] == "1 of 2 workers have no row of the 1"
