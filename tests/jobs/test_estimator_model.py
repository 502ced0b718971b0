"""TorchModel: what it adds to a DataFrame, and what is saved of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from estimators import made_net, same
from torch import nn

from trainyard.errors import JobError, SettingError
from trainyard.horovod import TorchEstimator, TorchModel
from trainyard.horovod.estimator.checks import together
from trainyard.ml.objects import LOADING, PickleWarning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestSaved:
    def test_a_class_of_the_driver_needs_a_choice_to_save_and_one_to_load(
        self, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
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
        with pytest.raises(
            JobError, match=r"holds a pickle.*spark\.trainyard\.allowPickle to true"
        ):
            TorchModel.load(str(tmp_path / "m"))
        spark.conf.set(LOADING, "true")
        request.addfinalizer(lambda: spark.conf.unset(LOADING))
        with pytest.warns(PickleWarning, match="chosen by allow_pickle"):
            loaded = TorchModel.load(str(tmp_path / "m"))
        assert same(loaded.getModel(), model.getModel())
        file = tmp_path / "m" / "objects.bin"
        file.with_name(".objects.bin.crc").unlink()
        file.write_bytes(file.read_bytes()[:-1] + b"x")
        with pytest.raises(JobError, match="was changed"):
            TorchModel.load(str(tmp_path / "m"))

    def test_an_optimizer_keeps_its_parameters(self, spark: SparkSession, tmp_path: Path) -> None:
        net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        body, head = net[0], net[1]

        def loaded(groups: Any) -> list[list[tuple[int, ...]]]:
            """Shapes of the parameters of each group, after it was saved and loaded twice."""
            estimator = TorchEstimator(model=net, optimizer=torch.optim.SGD(groups, lr=0.1))
            for name in ("once", "twice"):
                estimator.write().overwrite().save(str(tmp_path / name))
                estimator = TorchEstimator.load(str(tmp_path / name))
            optimizer = estimator.getOptimizer()
            assert isinstance(optimizer, torch.optim.SGD)
            assert optimizer.param_groups[0]["lr"] == 0.1
            trained = together(estimator.getModel(), optimizer)[1]
            shapes, as_trained = (
                [[tuple(p.shape) for p in group["params"]] for group in one.param_groups]
                for one in (optimizer, trained)
            )
            assert shapes == as_trained
            return shapes

        assert loaded(head.parameters()) == [[(1, 3), (1,)]]
        two = [{"params": head.parameters()}, {"params": body.parameters(), "lr": 0.01}]
        assert loaded(two) == [[(1, 3), (1,)], [(3, 2), (3,)]]
        stranger = torch.optim.SGD(nn.Linear(9, 9).parameters(), lr=0.1)
        with pytest.raises(SettingError, match="of other parameters than the model"):
            TorchEstimator(model=net, optimizer=stranger).save(str(tmp_path / "none"))
        with pytest.raises(JobError, match=r"TorchEstimator, and no .*\.TorchModel"):
            TorchModel.load(str(tmp_path / "twice"))

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


class Mean(nn.Module):
    """Gives one number for all rows."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.mean()


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
        with pytest.raises(SettingError, match="there is one of this name already"):
            model.transform(frame.selectExpr("x", "1 y__output"))
        with pytest.raises(JobError, match="fails for rows of zeros"):
            self.model(nn.Linear(3, 1)).transform(frame)
        with pytest.raises(JobError, match=r"gives \[1\] numbers for 2 rows"):
            self.model(Mean()).transform(frame)
        with pytest.raises(SettingError, match="nothing to predict with"):
            TorchModel(feature_columns=["x"], input_shapes=[[-1, 2]]).transform(frame)
        with pytest.raises(JobError, match="'x' has the type string"):
            model.transform(frame.selectExpr("'1.5' x"))
        with pytest.raises(SettingError, match="there is one of this name already"):
            model.setOutputCols(["X"]).transform(frame)
        assert model.setOutputCols([""]).transform(frame).columns == ["x"], "as Spark ML does"


def test_a_process_that_scores_imports_no_spark_ml() -> None:
    """Each worker's process would import it anew: a third of a second before the first row."""
    modules = "trainyard.horovod.estimator.scorer, trainyard.ml.part"
    program = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    assert "pyspark.ml" not in done.stdout.split()
