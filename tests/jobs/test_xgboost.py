"""One worker's training, in this process: the same as native XGBoost's, and as it says."""

from __future__ import annotations

import dataclasses
import io
import json
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import xgboost as xgb
from boosted import KINDS, NATIVE, Rows, native, real_dataset, real_rows, spec_of, trees
from job_runs import notes
from made_datasets import write_dataset
from sklearn.metrics import roc_auc_score

from trainyard import rundir
from trainyard.dataset import Dataset, Fitted
from trainyard.errors import JobError, SettingError
from trainyard.pieces import Arrays, Piece, PieceReader
from trainyard.xgboost import areas, explain, params, plots, rows
from trainyard.xgboost.booster import from_bytes
from trainyard.xgboost.history import Round, Stopping, TrainResult
from trainyard.xgboost.train import _seed, train


def run(run_dir: Path, dataset: Dataset, **settings: Any) -> TrainResult:
    run_dir.mkdir(parents=True, exist_ok=True)
    spec = spec_of(run_dir, dataset, **settings)
    params.check(spec, dataset)
    return train(spec, dataset, claim=1)


def booster_of(result: TrainResult) -> xgb.Booster:
    assert result.booster is not None
    return from_bytes(result.booster)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return real_dataset(tmp_path_factory.mktemp("binary"), "binary")


class TestAgainstNative:
    def test_each_kind_of_label(self, kind: str, tmp_path: Path) -> None:
        result = run(tmp_path / "run", real_dataset(tmp_path / "data", kind))
        theirs, log = native(real_rows(kind), NATIVE[kind])
        ours = booster_of(result)
        assert trees(ours) == trees(theirs)
        features = real_rows(kind)["test"][0]
        assert np.array_equal(ours.inplace_predict(features), theirs.inplace_predict(features))
        for split, prefix in (("train", ""), ("validation", "validation_")):
            ((metric, values),) = log[split].items()
            assert [done.figures[prefix + metric] for done in result.history] == values

    def test_weights(self, tmp_path: Path) -> None:
        rows = real_rows("binary")
        weights = {s: np.random.default_rng(1).uniform(0, 3, len(r[1])) for s, r in rows.items()}
        dataset = real_dataset(tmp_path / "data", "binary", weights=weights)
        theirs, log = native(rows, NATIVE["binary"], matrix={"weight": weights})
        result = run(tmp_path / "run", dataset)
        assert trees(booster_of(result)) == trees(theirs)
        assert result.best.figures["validation_logloss"] == log["validation"]["logloss"][-1]

    @pytest.mark.parametrize("kind", ["binary", "multiclass"])
    def test_base_margins(self, kind: str, tmp_path: Path) -> None:
        rows, rng = real_rows(kind), np.random.default_rng(1)
        width = 1 if kind == "binary" else 10
        margins = {s: rng.normal(size=(len(r[1]), width)) for s, r in rows.items()}
        dataset = real_dataset(
            tmp_path / "data", kind, margins={s: m.tolist() for s, m in margins.items()}
        )
        theirs, _ = native(rows, NATIVE[kind], matrix={"base_margin": margins})
        ours = booster_of(run(tmp_path / "run", dataset))
        assert trees(ours) == trees(theirs)
        without, _ = native(rows, NATIVE[kind])
        assert trees(ours) != trees(without)

    def test_class_weights_and_balance(self, binary: Dataset, tmp_path: Path) -> None:
        rows = real_rows("binary")
        counts = np.bincount(rows["train"][1])
        balance = (counts.sum() / (2 * counts)).astype(np.float32)
        for setting, of_class in (("balanced", balance), ("1,2.5", np.array([1, 2.5]))):
            weights = {split: of_class[labels] for split, (_, labels) in rows.items()}
            theirs, _ = native(rows, NATIVE["binary"], matrix={"weight": weights})
            result = run(tmp_path / setting, binary, class_weights=setting)
            assert trees(booster_of(result)) == trees(theirs)

    def test_parameters_and_the_other_objectives(self, tmp_path: Path) -> None:
        dataset = real_dataset(tmp_path / "data", "regression")
        for number, (objective, more, metric) in enumerate(
            [
                ("reg:absoluteerror", {}, "mae"),
                ("reg:quantileerror", {"quantile_alpha": 0.8}, "quantile"),
                ("reg:tweedie", {"tweedie_variance_power": 1.3}, "tweedie-nloglik_at_1.3"),
                ("count:poisson", {"max_delta_step": 0.5, "lambda": 2}, "poisson-nloglik"),
            ]
        ):
            result = run(
                tmp_path / str(number), dataset, objective=objective, booster_params=more, rounds=4
            )
            theirs, _ = native(real_rows("regression"), {"objective": objective, **more}, 4)
            assert trees(booster_of(result)) == trees(theirs)
            assert set(result.best.figures) == {metric, f"validation_{metric}"}

    def test_constraints(self, binary: Dataset, tmp_path: Path) -> None:
        given: dict[str, Any] = {
            "monotone_constraints": [1, -1],
            "interaction_constraints": [[0, 1], [2, 3, 4]],
        }
        texts = {"monotone_constraints": "(1,-1)", "interaction_constraints": "[[0,1],[2,3,4]]"}
        theirs, _ = native(real_rows("binary"), NATIVE["binary"] | texts)
        ours = booster_of(run(tmp_path, binary, booster_params=given))
        assert trees(ours) == trees(theirs)
        assert trees(ours) != trees(native(real_rows("binary"), NATIVE["binary"])[0])


class TestCategories:
    def dataset(self, directory: Path) -> tuple[Dataset, dict[str, Rows]]:
        """Two numbers, one with gaps, and a category that decides on the label."""
        rng = np.random.default_rng(0)
        rows: dict[str, Rows] = {}
        for split, count in (("train", 400), ("validation", 100), ("test", 100)):
            features = rng.normal(size=(count, 3)).astype(np.float32)
            features[:, 2] = rng.integers(0, 8, count)
            labels = ((features[:, 2] % 3 == 0) ^ (features[:, 0] > 0)).astype(np.int64)
            features[rng.random(count) < 0.2, 1] = np.nan
            features[rng.random(count) < 0.1, 2] = np.nan
            rows[split] = features, labels
        fitted = Fitted(
            numbers=("a", "b"),
            categories=("carrier",),
            values=2,
            width=3,
            imputation="keep",
            scaling="none",
            encoding="index",
            sha256="",
        )
        made = write_dataset(directory, rows, classes=2, row_group_rows=64, preprocessing=fitted)
        return made, rows

    def test_they_split_as_categories(self, tmp_path: Path) -> None:
        dataset, rows = self.dataset(tmp_path / "data")
        ours = booster_of(run(tmp_path / "run", dataset))
        types = {"feature_types": ["q", "q", "c"], "enable_categorical": True}
        theirs, _ = native(rows, NATIVE["binary"], matrix=types)
        assert trees(ours) == trees(theirs)
        assert '"split_condition": [' in "".join(trees(ours))
        features = rows["test"][0]
        matrix = xgb.DMatrix(features, feature_types=["q", "q", "c"], enable_categorical=True)
        assert np.array_equal(ours.inplace_predict(features), theirs.predict(matrix))

    def test_a_sentinel_that_is_a_category_is_refused(self, tmp_path: Path) -> None:
        dataset, _ = self.dataset(tmp_path / "data")
        with pytest.raises(SettingError, match="carrier would be missing too"):
            run(tmp_path / "run", dataset, missing=0)


class TestMissing:
    """What is missing is what the settings say, however it is written."""

    def rows(self) -> dict[str, Rows]:
        """Many zeros that tell something, as in a sparse vector."""
        rng = np.random.default_rng(0)
        rows: dict[str, Rows] = {}
        for split, count in (("train", 300), ("validation", 80), ("test", 80)):
            features = rng.normal(size=(count, 5)).astype(np.float32)
            features[rng.random((count, 5)) < 0.6] = 0.0
            labels = (np.nan_to_num(features[:, 0]) + (features[:, 1] == 0) > 0.4).astype(np.int64)
            rows[split] = features, labels
        return rows

    def dataset(self, directory: Path, rows: dict[str, Rows]) -> Dataset:
        return write_dataset(directory, rows, classes=2, row_group_rows=64)

    def test_zeros_are_numbers_unless_missing_is_0(self, tmp_path: Path) -> None:
        rows = self.rows()
        dataset = self.dataset(tmp_path / "data", rows)
        plain = booster_of(run(tmp_path / "plain", dataset))
        zeros = booster_of(run(tmp_path / "zeros", dataset, missing=0))
        assert trees(plain) == trees(native(rows, NATIVE["binary"])[0])
        assert trees(zeros) == trees(native(rows, NATIVE["binary"], matrix={"missing": 0.0})[0])
        assert trees(plain) != trees(zeros)

    @pytest.mark.parametrize("sentinel", [0.0, -999.0])
    def test_a_sentinel_is_as_good_as_nan(self, tmp_path: Path, sentinel: float) -> None:
        rows = self.rows()
        rng = np.random.default_rng(1)
        holes = {s: rng.random(f.shape) < 0.3 for s, (f, _) in rows.items()}
        shifted = {s: (f + np.float32(0.5), y) for s, (f, y) in rows.items()}
        marked = {
            value: {
                s: (np.where(holes[s], np.float32(value), f), y) for s, (f, y) in shifted.items()
            }
            for value in (np.nan, sentinel)
        }
        nan = booster_of(run(tmp_path / "1", self.dataset(tmp_path / "nan", marked[np.nan])))
        told = run(
            tmp_path / "2", self.dataset(tmp_path / "told", marked[sentinel]), missing=sentinel
        )
        assert trees(booster_of(told)) == trees(nan)
        # With a sentinel of its own, NaN is missing all the same.
        both = run(tmp_path / "3", self.dataset(tmp_path / "b", marked[np.nan]), missing=sentinel)
        assert trees(booster_of(both)) == trees(nan)

    def test_csr_of_scipy_says_the_same(self, tmp_path: Path) -> None:
        """XGBoost takes what a CSR matrix leaves out as missing: that is missing=0 here."""
        from scipy.sparse import csr_matrix

        rows = self.rows()
        zeros = booster_of(run(tmp_path / "zeros", self.dataset(tmp_path / "d", rows), missing=0))
        sparse: Any = {split: (csr_matrix(f), labels) for split, (f, labels) in rows.items()}
        assert trees(zeros) == trees(native(sparse, NATIVE["binary"])[0])

    def test_only_what_is_not_missing_is_held(self, tmp_path: Path) -> None:
        from trainyard.xgboost.rows import Share

        rows = self.rows()
        dataset = self.dataset(tmp_path / "data", rows)
        share = Share(dataset=dataset, split="train", rank=0, size=1)
        features = rows["train"][0]
        held = share.matrix(max_bin=256, missing=0.0).num_nonmissing()
        assert held == np.count_nonzero(features) < features.size / 2
        assert share.matrix(max_bin=256, missing=None).num_nonmissing() == features.size


class TestStopping:
    @pytest.mark.parametrize(
        "settings",
        [
            {"metrics": "error,logloss", "early_stopping_rounds": 4},
            {"metrics": "logloss,auc", "early_stopping_rounds": 3},
            {"early_stopping_rounds": 3, "min_delta": 0.01},
        ],
    )
    def test_it_stops_where_native_xgboost_does(
        self, binary: Dataset, tmp_path: Path, settings: dict[str, Any]
    ) -> None:
        result = run(tmp_path, binary, rounds=100, learning_rate=0.8, **settings)
        metrics = settings.get("metrics", "logloss").split(",")
        stopping = xgb.callback.EarlyStopping(
            rounds=settings["early_stopping_rounds"], min_delta=settings.get("min_delta", 0.0)
        )
        theirs, log = native(
            real_rows("binary"),
            {**NATIVE["binary"], "eval_metric": metrics, "learning_rate": 0.8},
            100,
            callbacks=[stopping],
        )
        assert result.best.number == theirs.best_iteration + 1
        assert len(result.history) == len(log["validation"][metrics[-1]]) < 100
        ours = booster_of(result)
        assert ours.num_boosted_rounds() == result.best.number
        assert trees(ours) == trees(theirs[: theirs.best_iteration + 1])
        assert f"round {result.best.number} is kept" in notes(tmp_path)[-1]

    def test_without_it_all_rounds_are_kept(self, tmp_path: Path) -> None:
        dataset = real_dataset(tmp_path / "data", "regression")
        result = run(tmp_path, dataset, rounds=40, learning_rate=0.9)
        losses = [done.figures["validation_rmse"] for done in result.history]
        assert losses[-1] > min(losses)
        assert result.best.number == booster_of(result).num_boosted_rounds() == 40

    def test_a_run_of_ties_and_small_gains(self) -> None:
        values = [0.5, 0.4, 0.4, 0.395, 0.39, 0.2]
        history = [Round(number=n, figures={"m": v}) for n, v in enumerate(values, start=1)]
        stop = Stopping(figure="m", grows=False, rounds=3, min_delta=0.05)
        assert stop.best(history[:5]).number == 2
        assert not stop.is_over(history[:4])
        assert stop.is_over(history[:5])
        falling = Stopping(figure="m", grows=True, rounds=3, min_delta=0.0)
        assert falling.best(history).number == 1
        assert falling.is_over(history[:4])


class TestAreas:
    def test_they_are_scikit_learns_and_xgboosts(self, binary: Dataset, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 2, 500)
        scores = np.round(labels + rng.normal(size=500), 1)  # with ties
        weights = rng.uniform(0, 2, 500)
        found = areas.roc_auc(scores, labels, weights)
        assert found == pytest.approx(roc_auc_score(labels, scores, sample_weight=weights))
        result = run(tmp_path, binary, metrics="aucpr,auc")
        _, log = native(real_rows("binary"), {**NATIVE["binary"], "eval_metric": ["aucpr", "auc"]})
        for metric, values in log["validation"].items():
            ours = [done.figures[f"validation_{metric}"] for done in result.history]
            assert ours == pytest.approx(values, abs=1e-6)

    def test_one_class_has_none(self) -> None:
        ones = np.ones(5)
        assert np.isnan(areas.roc_auc(np.arange(5), ones, ones))
        assert np.isnan(areas.pr_auc(np.arange(5), 1 - ones, ones))


SAMPLED = {"subsample": 0.6, "colsample_bytree": 0.7, "colsample_bynode": 0.8}


class TestResume:
    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"booster_params": SAMPLED},
            {"booster_params": {"booster": "dart", "rate_drop": 0.3}},
            {"early_stopping_rounds": 4, "metrics": "auc,logloss"},
        ],
    )
    def test_it_ends_with_the_same_model(
        self,
        binary: Dataset,
        tmp_path: Path,
        settings: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        settings = {"rounds": 23, "checkpoint_every": 5, **settings}
        whole = run(tmp_path / "whole", binary, **settings)
        write = rundir.EventWriter.metric

        def die(self: rundir.EventWriter, step: int, **values: float | None) -> None:
            if step == 13:
                raise RuntimeError("killed")
            write(self, step, **values)

        monkeypatch.setattr(rundir.EventWriter, "metric", die)
        with pytest.raises(RuntimeError, match="killed"):
            run(tmp_path / "halved", binary, **settings)
        monkeypatch.undo()
        halved = run(tmp_path / "halved", binary, **settings)
        assert (whole.resumed, halved.resumed) == (0, 10)
        assert halved.history == whole.history
        assert trees(booster_of(halved)) == trees(booster_of(whole))
        assert "training resumes after round 10" in notes(tmp_path / "halved")

    def test_sampling_draws_anew_in_each_segment(self, binary: Dataset, tmp_path: Path) -> None:
        first, second, other = (
            trees(
                booster_of(
                    run(tmp_path / name, binary, seed=seed, booster_params={"subsample": 0.5})
                )
            )
            for name, seed in (("a", 1), ("b", 1), ("c", 2))
        )
        assert first == second != other
        assert len({_seed(3, done) for done in range(0, 100, 10)}) == 10
        assert _seed(3, 0) == 3

    def test_a_finished_training_is_not_done_again(self, binary: Dataset, tmp_path: Path) -> None:
        once, again = run(tmp_path, binary), run(tmp_path, binary)
        assert again.resumed == 12
        assert trees(booster_of(again)) == trees(booster_of(once))

    def test_other_settings_start_anew(self, binary: Dataset, tmp_path: Path) -> None:
        run(tmp_path, binary, seed=1)
        assert run(tmp_path, binary, seed=2).resumed == 0
        assert "other settings or data" in notes(tmp_path)[-1]

    def test_a_corrupt_checkpoint_falls_back(self, binary: Dataset, tmp_path: Path) -> None:
        whole = run(tmp_path, binary, checkpoint_every=5)
        last = max((tmp_path / "checkpoints").iterdir())
        last.write_bytes(last.read_bytes()[:-100])
        again = run(tmp_path, binary, checkpoint_every=5)
        assert again.resumed == 10
        assert trees(booster_of(again)) == trees(booster_of(whole))
        assert "is corrupt" in notes(tmp_path)[0]


class TestRefused:
    @pytest.mark.parametrize(
        ("kind", "settings", "problem"),
        [
            ("regression", {"objective": "binary:logistic"}, "a number as its label"),
            ("binary", {"objective": "multi:softprob"}, "2 classes"),
            ("multiclass", {"metrics": "logloss"}, "does not measure a dataset with 10 classes"),
            ("regression", {"class_weights": "balanced"}, "no classes"),
            ("binary", {"class_weights": "1,2,3"}, "3 numbers, but the dataset has 2 classes"),
            ("binary", {"booster_params": {"monotone_constraints": [1] * 99}}, "XGBoost refuses"),
            ("regression", {"objective": "reg:logistic"}, "takes labels from 0 to 1"),
            (
                "binary",
                {"booster_params": {"interaction_constraints": [[0, 30]]}},
                "names the feature at 30, but there are 30",
            ),
            ("binary", {"booster_params": {"rate_drop": 0.5}}, '"rate_drop" has no effect with'),
            ("multiclass", {"booster_params": {"scale_pos_weight": 2}}, "the dataset has 10"),
            ("regression", {"booster_params": {"scale_pos_weight": 2}}, "the dataset has none"),
            (
                "binary",
                {"class_weights": "1,2", "booster_params": {"scale_pos_weight": 2}},
                "weighs the classes too",
            ),
            ("binary", {"class_weights": "1e39,1"}, "to what 32 bits hold"),
            ("binary", {"class_weights": "1e-50,1e-50"}, "the train split have a weight of 0"),
            ("binary", {"class_weights": "0,1"}, "with a weight above 0 have the label 1"),
            (
                "binary",
                {"early_stopping_rounds": 3, "booster_params": {"booster": "dart"}},
                "later rounds change the weights of earlier trees",
            ),
            ("binary", {"device": "gpu"}, "no GPU"),
        ],
    )
    def test_what_does_not_suit_the_dataset(
        self, kind: str, settings: dict[str, Any], problem: str, tmp_path: Path
    ) -> None:
        dataset = real_dataset(tmp_path / "data", kind)
        with pytest.raises(JobError, match=problem):
            run(tmp_path / "run", dataset, **settings)
        assert not (tmp_path / "run" / "checkpoints").exists()

    def test_no_validation_rows_to_stop_by(self, tmp_path: Path) -> None:
        rows = {"train": real_rows("binary")["train"]}
        dataset = write_dataset(tmp_path / "data", rows, classes=2)
        with pytest.raises(SettingError, match="'early_stopping_rounds' is 3"):
            run(tmp_path / "run", dataset, early_stopping_rounds=3)
        assert set(run(tmp_path / "run", dataset).best.figures) == {"logloss"}

    @pytest.mark.parametrize("classes", [2, 0])
    def test_a_constant_label(self, tmp_path: Path, classes: int) -> None:
        features, labels = real_rows("binary")["train"]
        same = np.ones_like(labels) if classes else np.ones(len(labels))
        dataset = write_dataset(tmp_path / "data", {"train": (features, same)}, classes=classes)
        with pytest.raises(JobError, match=r"training rows have the label '?1"):
            run(tmp_path / "run", dataset)

    def test_weights_by_which_nothing_counts(self, tmp_path: Path) -> None:
        rows = real_rows("binary")
        counts = {split: len(labels) for split, (_, labels) in rows.items()}
        for split in ("train", "validation"):
            weights = {s: [0.0 if s == split else 1.0] * n for s, n in counts.items()}
            dataset = real_dataset(tmp_path / split, "binary", weights=weights)
            with pytest.raises(JobError, match=f"of the {split} split have a weight of 0"):
                run(tmp_path / f"run-{split}", dataset)
        huge = {split: [1e30] * n for split, n in counts.items()}
        dataset = real_dataset(tmp_path / "huge", "binary", weights=huge)
        with pytest.raises(JobError, match="'counts' times class_weights is more than"):
            run(tmp_path / "run-huge", dataset, class_weights="1e30,1")

    def test_validation_labels_that_the_objective_does_not_take(self, tmp_path: Path) -> None:
        features, labels = real_rows("binary")["train"]
        splits = {"train": (features, labels * 0.5), "validation": (features, labels * 2.0)}
        dataset = write_dataset(tmp_path / "data", splits, classes=0)
        with pytest.raises(JobError, match="has 0 to 2 in the validation split"):
            run(tmp_path / "run", dataset, objective="reg:logistic")

    def test_labels_that_32_bits_merge(self, tmp_path: Path) -> None:
        features, labels = real_rows("binary")["train"]
        dataset = write_dataset(tmp_path / "data", {"train": (features, 1e9 + labels)}, classes=0)
        with pytest.raises(JobError, match="'1e\\+09' as 32-bit floats: there is nothing"):
            run(tmp_path / "run", dataset)

    def test_a_metric_that_is_not_finite(self, tmp_path: Path) -> None:
        rows = real_rows("binary")
        features, labels = rows["validation"]
        rows["validation"] = features[labels == 1], labels[labels == 1]
        dataset = write_dataset(tmp_path / "data", rows, classes=2)
        with pytest.raises(JobError, match="validation_auc became nan in round 1"):
            run(tmp_path / "run", dataset, metrics="auc")


def test_each_round_is_an_event(binary: Dataset, tmp_path: Path) -> None:
    result = run(tmp_path, binary)
    events = rundir.read_events(str(tmp_path), {})
    metrics = {e["step"]: e["values"] for e in events if e["kind"] == "metric"}
    assert metrics == {done.number: done.figures for done in result.history}
    progress = [e for e in events if e["kind"] == "progress"]
    assert [(e["done"], e["total"], e["unit"]) for e in progress][-1] == (12, 12, "round")
    (ranks,) = [e for e in events if e["kind"] == "ranks"]
    assert ranks["step"] == 10
    assert ranks["rows_per_second"][0] > 0
    assert 20e6 < ranks["memory"][0] < 20e9


def test_what_it_goes_by(binary: Dataset, tmp_path: Path) -> None:
    named = dataclasses.replace(binary, features=tuple(f"f.[{i}]" for i in range(30)))
    booster = booster_of(run(tmp_path, binary))
    found = explain.explain(booster, named, rows=60, missing=None)
    table = pa_csv.read_csv(io.BytesIO(found.files["importances.csv"])).to_pylist()
    assert [row["feature"] for row in table] == list(found.top)
    strength = [row["mean_abs_shap"] for row in table]
    assert strength == sorted(strength, reverse=True)
    features = real_rows("binary")["validation"][0][:60]
    theirs = booster.predict(xgb.DMatrix(features), pred_contribs=True)
    first = named.features.index(found.top[0])
    assert strength[0] == pytest.approx(np.abs(theirs[:, first]).mean(), rel=1e-5)
    gains = booster.get_score(importance_type="gain")
    assert table[0]["gain"] == pytest.approx(gains[f"f{first}"], rel=1e-5)
    shap = pq.read_table(io.BytesIO(found.files["shap.parquet"]))
    assert shap.num_rows == 60
    assert shap[f"shap: {found.top[0]}"].to_numpy() == pytest.approx(theirs[:, first], rel=1e-5)
    assert found.files["shap.png"].startswith(b"\x89PNG")
    assert found.files["importances.png"].startswith(b"\x89PNG")
    without = explain.explain(booster, named, rows=0, missing=None).files
    assert set(without) == {"importances.csv", "importances.png"}


def test_a_dollar_in_a_name_is_one(binary: Dataset, tmp_path: Path) -> None:
    named = dataclasses.replace(binary, features=tuple(rf"$\frac${i}" for i in range(30)))
    found = explain.explain(booster_of(run(tmp_path, binary)), named, rows=9, missing=None)
    assert found.files["shap.png"].startswith(b"\x89PNG")


def test_flags_in_json(binary: Dataset, tmp_path: Path) -> None:
    given = {"boost_from_average": False, "base_score": 0.3}
    theirs, _ = native(real_rows("binary"), NATIVE["binary"] | {**given, "boost_from_average": 0})
    assert trees(booster_of(run(tmp_path, binary, booster_params=given))) == trees(theirs)


def test_rows_are_held_once(
    binary: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """XGBoost asks four times for a worker's rows, and no part outlives the next one."""
    read, most = 0, 0
    parts: list[weakref.ref[Any]] = []

    class Telling(PieceReader):
        def arrays(self, pieces: Sequence[Piece]) -> Arrays:
            nonlocal read, most
            found = super().arrays(pieces)
            read += len(found.labels)
            parts.append(weakref.ref(found.features))
            most = max(most, sum(part() is not None for part in parts))
            return found

    monkeypatch.setattr(rows, "PieceReader", Telling)
    monkeypatch.setattr(rows, "_BATCH_BYTES", 4 * binary.width * 50)
    share = rows.Share(dataset=binary, split="train", rank=0, size=1)
    held = share.matrix(max_bin=256, missing=None)
    assert type(held) is xgb.QuantileDMatrix
    assert (held.num_row(), read) == (share.rows, 4 * share.rows)
    assert len(parts) == 4 * len(share.pieces) > 4
    assert most == 1
    assert all(part() is None for part in parts)


def test_a_sentinel_is_drawn_as_missing(
    binary: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booster, drawn = booster_of(run(tmp_path, binary)), []
    sentinel = float(real_rows("binary")["validation"][0][3, 2])
    monkeypatch.setattr(plots, "influences", lambda _, features, *more: drawn.append(features))
    explain.explain(booster, binary, rows=9, missing=sentinel)
    assert np.isnan(drawn[0][3, 2])
    assert np.isfinite(drawn[0]).sum() >= drawn[0].size - 3


def test_equal_values_have_one_colour() -> None:
    values = np.array([7.0, -1.0, 2.0, -1.0, 2.0])
    assert plots.places(values).tolist() == [1.0, 0.0, 0.5, 0.0, 0.5]
    assert plots.places(np.array([3.0, 3.0])).tolist() == [0.0, 0.0]


def test_more_classes_are_explained_one_by_one(tmp_path: Path) -> None:
    dataset = real_dataset(tmp_path / "data", "multiclass")
    booster = booster_of(run(tmp_path / "run", dataset, rounds=3))
    found = explain.explain(booster, dataset, rows=7, missing=None)
    shap = pq.read_table(io.BytesIO(found.files["shap.parquet"]))
    assert shap["class"].to_pylist() == [str(c) for c in range(10)] * 7
    assert found.files["shap.png"].startswith(b"\x89PNG")


@pytest.mark.parametrize("data", [b"", b"{}", b"\0" * 100])
def test_what_is_no_booster(data: bytes) -> None:
    with pytest.raises(JobError, match="cannot be read by XGBoost"):
        from_bytes(data)


def test_a_checkpoint_is_plain_ubj(binary: Dataset, tmp_path: Path) -> None:
    result = run(tmp_path, binary)
    plain = xgb.Booster()
    plain.load_model(max((tmp_path / "checkpoints").iterdir()))
    assert trees(plain) == trees(booster_of(result))
    assert len(json.loads(plain.attr("trainyard") or "")["history"]) == 12
    assert booster_of(result).attributes() == {}
