"""What TorchEstimator refuses, before any rank starts."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from estimators import estimator_of
from torch import nn

from trainyard import store as objects
from trainyard.errors import JobError, SettingError
from trainyard.horovod import SparkBackend, Store, TorchEstimator, TorchModel
from trainyard.sparkerrors import known_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE, HALF = nn.Linear(64, 10), nn.Linear(32, 10)
ANY = torch.optim.SGD(HALF.parameters(), lr=0.1)


class Locked(nn.Linear):
    """A model that cannot be copied."""

    def __init__(self) -> None:
        super().__init__(64, 10)
        self.lock = threading.Lock()


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
            ({"num_proc": 3}, "'num_proc' is 3: .* has 2 slots"),
            ({"store": "/a/path"}, "it is no trainyard.horovod.Store"),
            ({"model": nn.Linear, "optimizer": ANY}, "it is no torch.nn.Module"),
            ({"optimizer": torch.optim.SGD}, "it is no torch.optim.Optimizer"),
            ({"model": Locked()}, "it cannot be copied.*such as a lock"),
            ({"model": nn.Linear(64, 10).requires_grad_(False)}, "no parameter of it is trained"),
            ({"model": nn.LazyLinear(10)}, "whose shape is not known yet"),
            ({"train_minibatch_fn": "step"}, "it is no function"),
            ({"model": HALF, "input_shapes": [[-1, 32]]}, "input_shapes fails for the first rows"),
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
        whole = spark.createDataFrame([([2**24, -3],), ([1, -(2**40)],)], "pixels array<long>")
        with pytest.raises(JobError, match=r"'pixels' is null or above 2\^24, .*: 1\."):
            estimator.fit(whole.selectExpr("pixels", "1 digit"))
        ragged = spark.createDataFrame([([1.0], 1), ([1.0, 2.0], 1)], frame.schema)
        with pytest.raises(JobError, match="'pixels' have different lengths: 1, 2"):
            estimator.fit(ragged)
        with pytest.raises(JobError, match="0 rows"):
            estimator.fit(frame.limit(0))

    def test_ranks_without_slots_are_refused_before_rows_are_written(
        self, digits: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr("trainyard.horovod.estimator.fit.staged")
        with pytest.raises(SettingError, match=r"'num_proc' is 3: .* has 2 slots"):
            estimator_of(Store.create(str(tmp_path)), num_proc=3).fit(digits)

    def test_executors_without_the_packages_are_told_apart(self) -> None:
        text = "An exception was thrown\nModuleNotFoundError: No module named 'pyarrow'\n"
        known = known_error(text)
        assert known is not None
        assert "has no module 'pyarrow'" in known.cause
        assert sys.executable in known.fix

    def test_arguments_of_the_old_backend(self) -> None:
        with pytest.raises(SettingError, match="no MPI"):
            SparkBackend(2, use_mpi=True)
        with pytest.raises(SettingError, match="Did you mean 'num_proc'"):
            SparkBackend(num_procs=2)
        for number in ("2", 2.0, 0, True):
            with pytest.raises(SettingError, match="it is no whole number of ranks"):
                SparkBackend(number)  # type: ignore[arg-type]
