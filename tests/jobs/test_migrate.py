"""What `python -m trainyard.migrate` says of a program, line by line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainyard import migrate
from trainyard.errors import JobError
from trainyard.migrate import findings

PROGRAM = """\
import horovod.torch as hvd
import horovod.spark.torch as hvd_spark
from horovod.spark.torch import TorchEstimator as Estimator
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import LocalStore, Store
from azure.synapse.ml.horovodutils import AdlsStore
from sparkdl.xgboost import XgboostClassifier
import sparkdl
import petastorm

store = AdlsStore.create("abfs://c@a/x", storage_options={
    "account_name": "a",
    "linked_service": "l"}, save_runs=True)
backend = SparkBackend(num_proc=2, stdout=None, use_mpi=True)
estimator = Estimator(backend=backend, store=LocalStore("/x"), model=None, epochs=3,
    reader_pool_type="process",
    train_reader_num_workers=2,
    batchsize=3)
other = hvd_spark.TorchEstimator(mp_start_method="spawn", shuffle=True)
estimator.setDataModule(object)
classifier = XgboostClassifier(max_depth=3, use_gpu=True,
    gpu_id=0, n_jobs=4, eval_set=[])
runner = sparkdl.HorovodRunner(np=2)
model = dict(gpu_id=3)
raise SystemExit("this must not run")
"""


def told(source: str) -> dict[int, list[str]]:
    lines: dict[int, list[str]] = {}
    for found in findings(source):
        lines.setdefault(found.line, []).append(f"{found.what} -> {found.change}")
    return lines


def check_told(lines: dict[int, list[str]], wanted: dict[int, str]) -> None:
    """Each wanted line is told with its change, and no other one."""
    assert set(lines) == set(wanted), "no other line needs a change"
    for line, change in wanted.items():
        assert any(change in one for one in lines[line]), lines[line]


def test_each_line_says_what_is_there_and_what_to_do() -> None:
    lines = told(PROGRAM)
    wanted = {
        2: "import what you use of it: from trainyard.horovod import TorchEstimator, TorchModel",
        3: "from trainyard.horovod import TorchEstimator as Estimator",
        4: "from trainyard.horovod import SparkBackend",
        5: "from trainyard.horovod import Store",
        6: "from trainyard.horovod import AdlsStore",
        7: "from trainyard.sparkdl.xgboost import XgboostClassifier",
        8: "there is no such thing here",
        9: "ranks read Parquet themselves",
        11: "linked_service: give account_name and a key",
        14: "SparkBackend(use_mpi=...) -> leave it out",
        15: "Store.create(path)",
        16: "each rank reads its own row groups itself",
        18: "Did you mean 'batch_size'?",
        19: "TorchEstimator(mp_start_method=...) -> a rank starts no process",
        20: "setDataModule(...) -> rows are read by this project's loader",
        22: "XgboostClassifier(gpu_id=...) -> Spark says which GPU a worker has. Set use_gpu=True.",
        23: "SparkBackend(num_proc=n).run(main)",
    }
    check_told(lines, wanted)
    assert len(lines[22]) == 3


def test_a_program_that_uses_nothing_of_them_needs_nothing() -> None:
    assert (
        findings("import torch\nfrom mine import XgboostClassifier\nXgboostClassifier(gpu_id=1)")
        == []
    )


def test_names_that_come_and_go_by_other_ways() -> None:
    lines = told(
        "from horovod.spark.torch import *\n"
        "from horovod.spark.common.store import *\n"
        "from sparkdl.xgboost import (\n"
        "    XgboostClassifier,\n"
        ")\n"
        "from horovod.spark.lightning import TorchEstimator as Lightning\n"
        "import horovod.spark.keras\n"
        "def made():\n"
        "    from horovod.spark import torch as spark_torch\n"
        "    return spark_torch.TorchEstimator(data_module=int)\n"
        "TorchEstimator(reader_pool_type='process')\n"
        "LocalStore('/x')\n"
        "Classifier = XgboostClassifier\n"
        "Classifier(gpu_id=0)\n"
    )
    wanted = {
        1: "from trainyard.horovod import TorchEstimator, TorchModel",
        2: "from trainyard.horovod import Store",
        4: "from trainyard.sparkdl.xgboost import XgboostClassifier",
        6: "from trainyard.horovod import TorchEstimator: give it the module",
        7: "write the model in PyTorch",
        9: "from trainyard.horovod import TorchEstimator, TorchModel",
        10: "petastorm is not used",
        11: "each rank reads its own row groups itself",
        12: "Store.create(path)",
        14: "Set use_gpu=True.",
    }
    check_told(lines, wanted)


def test_a_programs_own_warnings_are_not_told(recwarn: pytest.WarningsRecorder) -> None:
    assert findings('import re, petastorm\nre.compile("\\d")\n')
    assert not recwarn.list


def test_a_notebook_is_told_apart() -> None:
    with pytest.raises(JobError, match="without lines that begin with %") as caught:
        findings("import torch\n%pip install x\n", "notebook.py")
    assert "notebook.py:2" in caught.value.cause


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"import os\nprint 'two'\n", r"old\.py:2 is no Python 3: Missing parentheses"),
        (b"def f(:\n", r"old\.py:1 is no Python 3: invalid syntax"),
        (b"import os\n\x00\xff\x9f", "is no Python 3"),
        (b'{"cells": [{"source": ["import sparkdl"]}], "nbformat": 4}', "is a notebook.*nbconvert"),
        (b"+".join([b"1"] * 20_000), "is no Python 3"),
    ],
    ids=["Python 2", "syntax error", "binary", "notebook", "nested too deeply"],
)
def test_what_is_no_program_says_so(source: bytes, said: str) -> None:
    with pytest.raises(JobError, match=said):
        findings(source, "old.py")


@pytest.mark.parametrize(
    "source",
    [
        b"\xef\xbb\xbfimport petastorm\r\n",
        b"# -*- coding: latin-1 -*-\nname = '\xe9'; import petastorm\n",
    ],
)
def test_a_program_in_another_encoding_is_read(source: bytes) -> None:
    assert [found.what for found in findings(source)] == ["import petastorm"]


def test_the_program(tmp_path: Path) -> None:
    file = tmp_path / "old.py"
    file.write_text("from sparkdl.xgboost import XgboostRegressor\n")

    def run(path: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trainyard.migrate", str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    done = run(file)
    assert done.returncode == 0
    assert done.stdout == (
        f"{file}:1: from sparkdl.xgboost import XgboostRegressor -> "
        "from trainyard.sparkdl.xgboost import XgboostRegressor\n"
    )
    for unreadable in (tmp_path / "none.py", tmp_path):
        refused = run(unreadable)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "cannot be read" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_python_alone_is_enough(tmp_path: Path) -> None:
    """It runs where no package is installed: -S leaves them out, -I the environment's paths."""
    file = tmp_path / "old.py"
    file.write_text(
        "from horovod.spark.torch import TorchEstimator\n"
        "from sparkdl.xgboost import XgboostClassifier\n"
        "TorchEstimator(data_module=Own)\n"
        "XgboostClassifier(n_jobs=4)\n"
    )
    program = (
        "import importlib.util, runpy, sys\n"
        f"sys.path.insert(0, {str(Path(migrate.__file__).parents[1])!r})\n"
        "assert importlib.util.find_spec('pyspark') is None\n"
        "runpy.run_module('trainyard.migrate', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    changes = dict(line.split(": ", 1)[1].split(" -> ") for line in done.stdout.splitlines())
    assert changes["from sparkdl.xgboost import XgboostClassifier"].endswith("XgboostClassifier")
    assert changes["from horovod.spark.torch import TorchEstimator"].endswith("TorchEstimator")
    assert "petastorm is not used" in changes["TorchEstimator(data_module=...)"]
    assert "Set num_workers" in changes["XgboostClassifier(n_jobs=...)"]
