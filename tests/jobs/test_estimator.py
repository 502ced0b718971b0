"""TorchEstimator as a driver program uses it: fit, transform, pipelines, persistence, stores."""

from __future__ import annotations

import copy
import json
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest
import torch
from torch import nn

from trainyard import store as objects
from trainyard.errors import JobError, SettingError
from trainyard.horovod import AdlsStore, SparkBackend, Store, TorchEstimator, TorchModel
from trainyard.ml.objects import PickleWarning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECRET = "sv=2024&sig=k3yTh4tN0b0dyM4ySee"


LINE = nn.Linear(64, 10)


@pytest.fixture(scope="module")
def digits(spark: SparkSession) -> DataFrame:
    """600 digits as vectors, half of them sparse, with a validation flag that is null for some."""
    from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
    from pyspark.sql.types import StructType
    from sklearn.datasets import load_digits

    bunch = load_digits()
    rows = []
    for number, (pixels, digit) in enumerate(zip(bunch.data[:600], bunch.target, strict=False)):
        scaled = pixels / 16
        vector = (
            DenseVector(scaled)
            if number % 2
            else SparseVector(64, np.flatnonzero(scaled), scaled[np.flatnonzero(scaled)])
        )
        held = None if number % 10 == 1 else number % 5 == 0
        rows.append((number, int(digit), held, f"text {number}", vector))
    schema: Any = StructType.fromDDL("id int, digit int, held boolean, more string")
    schema.add("pixels", VectorUDT())
    frame = spark.createDataFrame(rows, schema)
    return frame.repartition(3).cache()


def made_net() -> nn.Module:
    """A network whose class only this driver program knows."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Linear(64, 16)
            self.scores = nn.Linear(16, 10)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return torch.log_softmax(self.scores(torch.relu(self.hidden(pixels))), dim=1)

    torch.manual_seed(0)
    return Net()


def estimator_of(store: Store | None, **changed: Any) -> TorchEstimator:
    net = changed.pop("model", None) or made_net()
    given = {
        "backend": None if "num_proc" in changed else SparkBackend(num_proc=2, stdout=None),
        "store": store,
        "model": net,
        "optimizer": torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5),
        "loss": lambda output, label: nn.functional.nll_loss(output, label.long()),
        "metrics": [[lambda output, label: (output.argmax(1) == label.long()).float().mean()]],
        "feature_cols": ["pixels"],
        "label_cols": ["digit"],
        "input_shapes": [[-1, 64]],
        "batch_size": 16,
        "epochs": 3,
        "random_seed": 1,
        "partitions_per_process": 1,
        "verbose": 0,
        **changed,
    }
    return TorchEstimator(**{name: value for name, value in given.items() if value is not None})


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


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


def test_ranks_and_sql_functions_share_their_processes(spark: SparkSession) -> None:
    import pyarrow as pa

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
        half = estimator_of(store, run_id="one", epochs=1, **shared).fit(digits)
        other = estimator_of(store, run_id="two", epochs=2, **shared).fit(digits)
        whole = estimator_of(store, run_id="one", epochs=2, **shared).fit(digits)
        assert len(half.getHistory()) == 1
        assert whole.getHistory() == other.getHistory()
        assert same(whole.getModel(), other.getModel())
        assert whole.getHistory()[0] == half.getHistory()[0]
        assert len(store.get_checkpoints("one")) == 2
        again = estimator_of(store, run_id="one", epochs=2, **shared).fit(digits)
        assert same(again.getModel(), whole.getModel()), "there is nothing left to train"

        for changed, frame in (
            ({}, digits.limit(500)),
            ({"batch_size": 8}, digits),
            ({"optimizer": torch.optim.SGD(shared["model"].parameters(), lr=0.2)}, digits),
        ):
            with pytest.raises(SettingError, match=r"'run_id' is 'one'.*was made with other"):
                estimator_of(store, run_id="one", epochs=3, **{**shared, **changed}).fit(frame)

    def test_runs_without_a_name_have_different_ones(self, tmp_path: Path) -> None:
        from trainyard.horovod.estimator.fit import Fit

        names = {Fit(estimator_of(Store.create(str(tmp_path)))).run_id for _ in range(5)}
        assert len(names) == 5

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
        estimatorParamMaps=ParamGridBuilder().addGrid(estimator.epochs, [20]).build(),
        evaluator=evaluator,
        numFolds=2,
    )
    best: Any = validator.fit(frame).bestModel
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


class TestSaved:
    def test_a_class_of_the_driver_needs_a_choice_and_loading_says_so(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        model = TorchModel(
            model=made_net(), feature_columns=["x"], label_columns=["y"], input_shapes=[[-1, 64]]
        )
        with pytest.raises(SettingError, match=r"'allow_pickle' is False: model of TorchModel"):
            model.save(str(tmp_path / "m"))
        layer = nn.TransformerEncoderLayer(4, 1)  # PyTorch's own, with a function inside
        with pytest.raises(SettingError, match="can be saved only as a pickle"):
            TorchModel(model=layer, label_columns=["y"]).save(str(tmp_path / "m"))
        model.setAllowPickle(True).write().overwrite().save(str(tmp_path / "m"))
        with pytest.warns(PickleWarning, match="chosen by allow_pickle"):
            loaded = TorchModel.load(str(tmp_path / "m"))
        assert same(loaded.getModel(), model.getModel())
        file = tmp_path / "m" / "objects.bin"
        file.with_name(".objects.bin.crc").unlink()
        file.write_bytes(file.read_bytes()[:-1] + b"x")
        with pytest.raises(JobError, match="was changed"):
            TorchModel.load(str(tmp_path / "m"))

    def test_a_file_that_names_another_class_runs_nothing(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        import hashlib
        import io
        import subprocess

        class Evil:
            def __reduce__(self) -> Any:
                return subprocess.call, (["touch", str(tmp_path / "ran")],)

        TorchModel(model=nn.Linear(2, 1), label_columns=["y"]).save(str(tmp_path / "m"))
        buffer = io.BytesIO()
        torch.save({"model": Evil()}, buffer)
        (tmp_path / "m" / "objects.bin").write_bytes(buffer.getvalue())
        [part] = (tmp_path / "m" / "metadata").glob("part-*")
        described = json.loads(part.read_text())
        described["file"]["sha256"] = hashlib.sha256(buffer.getvalue()).hexdigest()
        part.write_text(json.dumps(described))
        for crc in tmp_path.rglob("*.crc"):
            crc.unlink()
        with pytest.raises(JobError, match="no layer of PyTorch"):
            TorchModel.load(str(tmp_path / "m"))
        assert not (tmp_path / "ran").exists()


class TestTransform:
    def model(self, net: nn.Module, **changed: Any) -> TorchModel:
        given = {"feature_columns": ["x"], "label_columns": ["y"], "input_shapes": [[-1, 2]]}
        return TorchModel(**{"model": net, **given, **changed})

    def test_several_outputs_names_with_dots_and_arrays(self, spark: SparkSession) -> None:
        class Two(nn.Module):
            def forward(self, x: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
                return [x * 2, n[:, 0] + 0.5]

        frame = spark.createDataFrame([([1, 2], 3), ([4, 5], 6)], "`x.y` array<int>, n long")
        columns = {"feature_columns": ["x.y", "n"], "label_columns": ["a", "b"]}
        model = self.model(Two(), input_shapes=[[-1, 2], [-1, 1]], **columns)
        rows = model.transform(frame.coalesce(1)).collect()
        assert [row["a__output"].toArray().tolist() for row in rows] == [[2, 4], [8, 10]]
        assert [row["b__output"] for row in rows] == [3.5, 6.5]

    def test_what_does_not_fit(self, spark: SparkSession) -> None:
        frame = spark.createDataFrame([([1.0, 2.0],), (None,)], "x array<double>")
        model = self.model(nn.Linear(2, 1))
        with pytest.raises(Exception, match="have a null in column 'x'"):
            model.transform(frame).collect()
        with pytest.raises(Exception, match="do not have the model's 2 numbers"):
            model.transform(spark.createDataFrame([([1.0],)], "x array<double>")).collect()
        with pytest.raises(JobError, match="no column 'x'"):
            model.transform(frame.withColumnRenamed("x", "z"))
        with pytest.raises(SettingError, match="has one of this name"):
            model.transform(frame.selectExpr("x", "1 y__output"))
        with pytest.raises(JobError, match="fails for rows of zeros"):
            self.model(nn.Linear(3, 1)).transform(frame)


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("data_module", object),
            ("continuous_cols", ["a"]),
            ("reader_pool_type", "process"),
            ("train_reader_num_workers", 4),
            ("mp_start_method", "spawn"),
            ("shuffle_buffer_size", 0),
        ],
    )
    def test_what_has_no_meaning_says_what_replaced_it(self, name: str, value: Any) -> None:
        with pytest.raises(SettingError, match=f"{name!r} is"):
            TorchEstimator(**{name: value})
        assert TorchEstimator(**{name: None}).getOrDefault(name) is None

    def test_every_parameter_of_horovods_is_one_here(self) -> None:
        import inspect

        from horovod.spark.common.params import EstimatorParams, ModelParams
        from horovod.spark.torch import TorchEstimator as Theirs
        from horovod.spark.torch import TorchModel as TheirModel

        names = set(inspect.signature(inspect.unwrap(Theirs.__init__)).parameters) - {"self"}
        assert len(names) >= 40
        assert names <= set(TorchEstimator.table)
        for theirs, base, ours in (
            (Theirs, EstimatorParams, TorchEstimator),
            (TheirModel, ModelParams, TorchModel),
        ):
            methods = {
                name
                for cls in (theirs, base)
                for name in vars(cls)
                if name.startswith(("set", "get")) and name not in ("getModelClass",)
            }
            assert not {m for m in methods if not hasattr(ours, m)} - {"get_model_class"}

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"batchsize": 3}, "Did you mean 'batch_size'"),
            ({"store": None}, "'store' is None"),
            ({"input_shapes": None}, "'input_shapes' is None"),
            ({"input_shapes": [[64]]}, "does not begin with -1"),
            ({"input_shapes": [[-1, 64], [-1, 1]]}, "a list of 1 shapes"),
            ({"loss": None}, "either loss or loss_constructors"),
            ({"validation": 1}, "neither a share"),
            ({"validation": True}, "neither a share"),
            ({"validation": "other"}, "no column 'other'"),
            ({"validation": 1e-9}, "there are none for validation"),
            ({"label_cols": ["digits"]}, "Did you mean 'digit'"),
            ({"label_cols": ["more"]}, "column 'more' has the type string"),
            ({"sample_weight_col": "pixels"}, "pixels"),
            ({"batch_size": 400}, "600 rows, fewer than one step's 2 ranks x 400"),
            ({"gradient_compression": "fp8"}, "none of Horovod's"),
            ({"callbacks": [3]}, "can be called in no way"),
            ({"model": LINE, "optimizer": torch.optim.LBFGS(LINE.parameters())}, "several times"),
            ({"optimizer": torch.optim.SGD(LINE.parameters(), lr=1)}, "other parameters than"),
            ({"loss_weights": [1.0, 2.0]}, "there are 1 label_cols"),
            ({"num_proc": 2, "backend": SparkBackend(2)}, "Give one of both"),
            ({"loss": lambda output, label: output.missing}, "loss fails for the first rows"),
        ],
    )
    def test_before_any_rank_starts(
        self, digits: DataFrame, tmp_path: Path, changed: dict[str, Any], said: str
    ) -> None:
        def fit() -> TorchModel:
            given = {"store": Store.create(str(tmp_path)), **changed}
            made = estimator_of(given.pop("store"), **given)
            for name in (name for name, value in changed.items() if value is None):
                made.clear(made.getParam(name))
            return made.fit(digits)

        with pytest.raises(JobError, match=said):
            fit()

    def test_rows_that_cannot_be_trained_on_are_counted(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        nan = float("nan")
        rows = [
            ([1.0, 2.0], 1),
            ([nan, 1.0], 1),
            (None, 2),
            ([3.0, 4.0], None),
            ([1.0, 1.0], 2**25),
        ]
        frame = spark.createDataFrame(rows * 3, "pixels array<double>, digit long")
        estimator = estimator_of(Store.create(str(tmp_path)), input_shapes=[[-1, 2]])
        with pytest.raises(JobError) as caught:
            estimator.fit(frame)
        assert "of 15 rows" in caught.value.cause
        for said in ("'pixels' is null: 3", "'pixels' is not a number (NaN): 3", "above 2^24"):
            assert said in caught.value.cause
        assert objects.list_names(f"{tmp_path}/intermediate") == []
        ragged = spark.createDataFrame([([1.0], 1), ([1.0, 2.0], 1)], frame.schema)
        with pytest.raises(JobError, match="'pixels' have different lengths: 1, 2"):
            estimator.fit(ragged)
        with pytest.raises(JobError, match="0 rows"):
            estimator.fit(frame.limit(0))

    def test_arguments_of_the_old_backend(self) -> None:
        with pytest.raises(SettingError, match="no MPI"):
            SparkBackend(2, use_mpi=True)
        with pytest.raises(SettingError, match="Did you mean 'num_proc'"):
            SparkBackend(num_procs=2)


class Broken(fsspec.AbstractFileSystem):  # type: ignore[misc] # it has no types
    """A filesystem that tells its key when it cannot be opened."""

    def __init__(self, key: str) -> None:
        raise RuntimeError(f"wrong key {key}")


class TestStore:
    def test_it_has_the_paths_of_horovods(self, tmp_path: Path) -> None:
        from horovod.spark.common.store import FilesystemStore

        theirs = FilesystemStore(str(tmp_path))
        ours = Store.create(str(tmp_path))
        for ask in ("get_train_data_path", "get_val_data_path", "get_test_data_path"):
            wanted = getattr(theirs, ask)(3).removeprefix("file://")
            assert getattr(ours, ask)(3) == wanted
        assert ours.get_run_path("r") == theirs.get_run_path("r").removeprefix("file://")
        ours.write_text(f"{tmp_path}/a/b.txt", "text")
        assert ours.read(f"{tmp_path}/a/b.txt") == b"text"
        assert ours.exists(f"{tmp_path}/a")

    @pytest.mark.parametrize("uri", ["s3://bucket/x", "gs://bucket/x", "abfs://c@a/x"])
    def test_a_filesystem_that_is_not_installed(self, uri: str) -> None:
        with pytest.raises(
            JobError, match=f"Install the fsspec package for {uri.partition(':')[0]}"
        ):
            Store.create(uri)

    def test_a_pickle_of_it_has_no_secret(self, tmp_path: Path) -> None:
        from pyspark import cloudpickle

        store = Store.create(str(tmp_path), storage_options={"sas": SECRET})
        pickled: bytes = cloudpickle.dumps(lambda: store)  # type: ignore[no-untyped-call]
        assert SECRET.encode() not in pickled
        assert copy.deepcopy(store).storage_options == {"sas": SECRET}

    def test_secrets_are_not_in_its_errors(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError) as caught:
            Store.create(str(tmp_path), token=SECRET)
        assert SECRET not in str(caught.value)
        with pytest.raises(SettingError) as misplaced:
            TorchEstimator(storage_options={"sas": SECRET})
        assert SECRET not in str(misplaced.value)
        fsspec.register_implementation("broken", Broken, clobber=True)
        with pytest.raises(JobError, match=r"wrong key .hidden.") as opened:
            Store.create("broken://host/x", storage_options={"key": SECRET})
        assert SECRET not in "".join(traceback.format_exception(opened.value))

    def test_synapses_store(self) -> None:
        with pytest.raises(SettingError, match="no URI of Azure"):
            AdlsStore.create("s3://x/y")
        with pytest.raises(
            SettingError, match="linked service exists inside Azure Synapse"
        ) as caught:
            AdlsStore.create(
                "abfs://c@a.dfs.core.windows.net/x", storage_options={"linked_service": SECRET}
            )
        assert SECRET not in str(caught.value)
        with pytest.raises(SettingError, match="Did you mean 'sas_token'"):
            AdlsStore.create("abfs://c/x", storage_options={"sastoken": SECRET})
