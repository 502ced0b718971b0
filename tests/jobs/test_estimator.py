"""TorchEstimator as a driver program uses it: fit, runs, rows of Parquet, pipelines."""

from __future__ import annotations

import copy
import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from estimators import SECRET, estimator_of, made_net, same
from torch import nn

from trainyard import store as objects
from trainyard.errors import JobError, SettingError
from trainyard.horovod import SparkBackend, Store
from trainyard.horovod.estimator.backend import _with_variables
from trainyard.horovod.estimator.fit import Fit
from trainyard.ml.objects import PickleWarning
from trainyard.ml.part import Taken
from trainyard.ml.staging import stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_the_tutorial(
    spark: SparkSession, digits: DataFrame, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.sql.functions import udf
    from pyspark.sql.types import DoubleType

    store = Store.create(str(tmp_path), storage_options={"auto_mkdir": True, "sas": SECRET})
    estimator = estimator_of(store, validation="held", verbose=1)
    before = copy.deepcopy(estimator.getModel())
    model = estimator.fit(digits).setOutputCols(["scores"])
    assert same(estimator.getModel(), before), "the user's own model stays as it was"

    history = model.getHistory()
    assert [epoch["epoch"] for epoch in history] == [0, 1, 2]
    assert history[2]["validation"]["loss"] < history[0]["validation"]["loss"]

    given = model.transform(digits)
    assert given.columns == [*digits.columns, "scores"]
    rows = given.orderBy("id").collect()
    assert [row["more"] for row in rows] == [f"text {number}" for number in range(600)]
    with torch.no_grad():
        wanted = model.getModel()(
            torch.tensor(np.stack([row["pixels"].toArray() for row in rows])).float()
        )
    found = np.stack([row["scores"].toArray() for row in rows])
    assert np.allclose(found, wanted.numpy(), atol=1e-5)
    # No row of a null flag is lost: the accuracy that training saw is over all the others.
    held = torch.tensor([row["held"] is True for row in rows])
    digit = torch.tensor([row["digit"] for row in rows])
    best = min(history, key=lambda epoch: epoch["validation"]["loss"])
    accuracy = (wanted.argmax(1) == digit)[held].float().mean().item()
    [metrics] = best["validation"]["all_metrics"]
    assert metrics["group_0_digit"] == pytest.approx(accuracy, abs=1e-6)

    argmax = udf(lambda v: float(np.argmax(v)), returnType=DoubleType())
    judged = given.withColumn("predicted", argmax("scores"))
    evaluator = MulticlassClassificationEvaluator(
        predictionCol="predicted", labelCol="digit", metricName="accuracy"
    )
    assert evaluator.evaluate(judged) == pytest.approx(
        (wanted.argmax(1) == digit).float().mean().item()
    )

    logs = json.loads(store.read(f"{store.get_logs_path(model.getRunId())}/history.json"))
    assert logs == history
    assert objects.list_names(f"{tmp_path}/intermediate") == [], "rows are removed again"
    out = capfd.readouterr()
    said = [out.out, out.err, repr(store), repr(estimator), estimator.explainParams()]
    said += [
        path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
    ]
    assert not [text for text in said if SECRET in text]


def test_rows_whose_validation_flag_is_null_are_trained_on(
    digits: DataFrame, tmp_path: Path
) -> None:
    taken = [Taken(source="digit", name="digit", kind=pa.float32())]
    staged = stage(digits, taken, directory=str(tmp_path), access=None, validation="held", parts=2)
    assert (staged.rows("train"), staged.rows("validation")) == (480, 120)
    assert [len(staged.files[split]) for split in ("train", "validation")] == [2, 2]
    # Nulls that came by pandas are NaN, in a column whose name may hold dots.
    named = digits.selectExpr("digit `a.b`", "id a", "if(held, 1, double('NaN')) `to.hold`")
    taken = [Taken(source="a.b", name="a.b", kind=pa.float32())]
    place = str(tmp_path / "named")
    staged = stage(named, taken, directory=place, access=None, validation="to.hold", parts=2)
    assert (staged.rows("train"), staged.rows("validation")) == (480, 120)


def test_variables_of_ranks_do_not_stay_in_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(fails: bool) -> list[str | None]:
        if fails:
            raise RuntimeError
        return [os.environ.get(name) for name in ("KNOWN", "NEW")]

    monkeypatch.setenv("KNOWN", "before")
    monkeypatch.delenv("NEW", raising=False)
    given = {"KNOWN": "a", "NEW": SECRET}
    assert _with_variables(given, lambda: ask(False)) == ["a", SECRET]
    assert ask(False) == ["before", None]
    with pytest.raises(RuntimeError):
        _with_variables(given, lambda: ask(True))
    assert ask(False) == ["before", None]


def test_ranks_and_sql_functions_share_their_processes(spark: SparkSession) -> None:
    def variable() -> str | None:
        """What Spark tells its pools of Python processes apart by."""
        import os

        return os.environ.get("SPARK_SIMPLIFIED_TRACEBACK")

    def told(batches: Any) -> Any:
        for _ in batches:
            pass
        yield pa.record_batch({"variable": [variable()]})

    of_ranks = set(SparkBackend(num_proc=2).run(variable))
    rows = spark.range(2).mapInArrow(told, "variable string").collect()
    assert of_ranks == {row["variable"] for row in rows} == {"1"}


class TestRuns:
    def test_a_run_id_resumes_and_two_runs_share_nothing(
        self, digits: DataFrame, tmp_path: Path
    ) -> None:
        store = Store.create(str(tmp_path))
        shared: dict[str, Any] = {"validation": 0.2, "label_cols": ["digit"], "model": made_net()}
        name = "one: a run"  # as no directory is called
        half = estimator_of(store, run_id=name, epochs=1, **shared).fit(digits)
        other = estimator_of(store, run_id="two", epochs=2, **shared).fit(digits)
        whole = estimator_of(store, run_id=name, epochs=2, **shared).fit(digits)
        assert len(half.getHistory()) == 1
        assert whole.getHistory() == other.getHistory()
        assert same(whole.getModel(), other.getModel())
        assert whole.getHistory()[0] == half.getHistory()[0]
        assert [len(store.get_checkpoints(run)) for run in (name, "two")] == [2, 2]
        # There is nothing left to train, so that no slots are needed.
        again = estimator_of(store, run_id=name, epochs=2, num_proc=9, **shared).fit(digits)
        assert same(again.getModel(), whole.getModel())

        for changed, frame in (
            ({}, digits.limit(500)),
            ({"batch_size": 8}, digits),
            ({"optimizer": torch.optim.SGD(shared["model"].parameters(), lr=0.2)}, digits),
        ):
            with pytest.raises(SettingError, match=r"'run_id' is 'one: .*was made with other"):
                estimator_of(store, run_id=name, epochs=3, **{**shared, **changed}).fit(frame)

    def test_all_that_an_optimizer_was_made_with_tells_runs_apart(self, tmp_path: Path) -> None:
        net = made_net()

        def made_by(**settings: Any) -> Any:
            optimizer = torch.optim.Adam(net.parameters(), **settings)
            estimator = estimator_of(Store.create(tmp_path), model=net, optimizer=optimizer)
            return Fit(estimator)._made_by("rows")["optimizer"]

        assert made_by() == made_by(betas=(0.9, 0.999))
        assert made_by() != made_by(betas=(0.8, 0.999))

    def test_runs_without_a_name_have_different_ones(self, tmp_path: Path) -> None:
        store = Store.create(str(tmp_path))
        assert len({Fit(estimator_of(store)).run_id for _ in range(5)}) == 5
        rows = {Fit(estimator_of(store, run_id="one")).temporary for _ in range(2)}
        assert len(rows) == 2, "fits of one run at a time do not write into each other's rows"

    def test_the_model_is_the_best_epochs_and_not_the_last(self, tmp_path: Path) -> None:
        estimator = estimator_of(Store.create(str(tmp_path)))
        best, last = made_net(), made_net()
        torch.nn.init.zeros_(next(last.parameters()))
        state = {
            "network": last.state_dict(),
            "best": best.state_dict(),
            "optimizer": estimator.getOptimizer().state_dict(),
            "history": [{"epoch": 0}, {"epoch": 1}],
        }
        fitted = Fit(estimator)._fitted(state)
        assert same(fitted.model, best)
        assert not same(fitted.model, last)

    def test_nothing_is_left_where_runs_are_not_saved(
        self, digits: DataFrame, tmp_path: Path
    ) -> None:
        store = Store.create(str(tmp_path), save_runs=False)
        assert store.get_checkpoint_path("x") is None
        estimator_of(store, epochs=1, num_proc=1).fit(digits.limit(50))
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_rows_of_parquet_as_they_are(
    spark: SparkSession, digits: DataFrame, tmp_path: Path
) -> None:
    store = Store.create(str(tmp_path))
    split = digits.withColumn("is_held", digits.id % 5 == 0)
    split.filter("not is_held").write.parquet(store.get_train_data_path(7))
    split.filter("is_held").write.parquet(store.get_val_data_path(7))
    estimator = estimator_of(store, validation="held", epochs=2, shuffle=False)
    model = estimator.fit_on_parquet({estimator.epochs: 1}, dataset_idx=7)
    assert len(model.getHistory()) == 1
    assert model.getHistory()[0]["validation"]["loss"] > 0
    with pytest.raises(JobError, match=r"no rows of Parquet at .*intermediate_train_data'"):
        estimator.fit_on_parquet()


def test_pipeline_cross_validation_and_numbers(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    rng = np.random.default_rng(0)
    rows = [(float(a), float(b), round(2 * a - b)) for a, b in rng.normal(size=(120, 2)) * 3]
    frame = spark.createDataFrame(rows, "a double, b double, y int").repartition(2)
    net = nn.Sequential(nn.Linear(2, 1))
    estimator = estimator_of(
        Store.create(str(tmp_path / "store")),
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=0.1),
        loss=nn.functional.mse_loss,
        metrics=[],
        feature_cols=["both"],
        label_cols=["y"],
        input_shapes=[[-1, 2]],
        num_proc=1,
        epochs=1,
    )
    pipeline = Pipeline(stages=[VectorAssembler(inputCols=["a", "b"], outputCol="both"), estimator])
    evaluator = RegressionEvaluator(predictionCol="y__output", labelCol="y", metricName="rmse")
    validator = CrossValidator(
        estimator=pipeline,
        estimatorParamMaps=ParamGridBuilder().addGrid(estimator.epochs, [1, 20]).build(),
        evaluator=evaluator,
        numFolds=2,
    )
    validated = validator.fit(frame)
    best: Any = validated.bestModel
    short, long = validated.avgMetrics
    assert long < short, "each value was trained with"
    scored = best.transform(frame)
    assert dict(scored.dtypes)["y__output"] == "double", "integer labels keep double scores"
    assert {row["y__output"] % 1 for row in scored.take(5)} != {0.0}
    assert evaluator.evaluate(scored) < 2
    assert len(best.stages[1].getHistory()) == 20

    # Made of PyTorch's own layers, it is saved without a pickle.
    with warnings.catch_warnings():
        warnings.simplefilter("error", PickleWarning)
        best.write().overwrite().save(str(tmp_path / "saved"))
        loaded: Any = PipelineModel.load(str(tmp_path / "saved"))
        pipeline.write().overwrite().save(str(tmp_path / "pipeline"))
        again: Any = Pipeline.load(str(tmp_path / "pipeline")).getStages()[1]
    assert loaded.transform(frame).collect() == scored.collect()
    assert same(loaded.stages[1].getModel(), best.stages[1].getModel())
    assert isinstance(loaded.stages[1].getOptimizer(), torch.optim.Adam)
    assert (again.getEpochs(), again.getStore()) == (1, None), "a store is a session's own"
    assert again.setStore(Store.create(str(tmp_path / "store"))).getLoss() is nn.functional.mse_loss
