"""The doctor: what it looks at before a run, and what it says of it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.plugins.conftest import ROOT, Worker
from tests.plugins.fake_master import idle, web_ui

from trainyard.specs import Prepare, RunDirectory, TrainHorovod
from trainyard_airflow.connection import resolve
from trainyard_airflow.doctor.examine import examine
from trainyard_airflow.doctor.findings import Finding
from trainyard_airflow.doctor.given import look_at_sources
from trainyard_airflow.doctor.patient import Patient, patients_of
from trainyard_airflow.operators.doctor import DoctorOperator
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import param, result, trigger_params

MakeContext = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Light(RunDirectory):
    """A job that imports nothing heavy."""

    job = "prepare"
    imports = ("json", "wave")


@dataclass(frozen=True, kw_only=True)
class Quiet(RunDirectory):
    """A job that imports a package that does not say its version."""

    job = "prepare"
    imports = ("quiet",)


LIGHT = Patient(task_id="light", job=Light(run_dir="/r"), conn_id="spark_default")
TRAIN = Patient(
    task_id="train",
    job=TrainHorovod(run_dir="/r", dataset="d", model_name="m", ranks=2),
    conn_id="spark_default",
)


@pytest.fixture(autouse=True)
def machine(worker: Worker) -> Worker:
    """A machine on which a run would work, whose Python knows what it has without importing it."""
    worker.set(
        MLFLOW_TRACKING_URI=f"sqlite:///{worker.home}/mlflow.db",
        AIRFLOW__TRAINYARD__JOBS_FOLDER=str(ROOT / "jobs"),
    )
    write_python(worker.home / "bin/python", "3.11.7")
    return worker


def write_python(path: Path, version: str) -> None:
    """A program that answers as Python does when it is asked for itself."""
    versions = {"pyspark": "4.3.0", "torch": "2.13.0+cpu"}
    told = {"python": version, "versions": versions, "errors": {}, "cuda": False}
    path.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
    path.chmod(0o755)


def said(findings: list[Finding], level: str = "error") -> list[str]:
    return [str(finding).split(None, 1)[1] for finding in findings if finding.level == level]


def errors_of(patient: Patient) -> str:
    return "\n".join(said(examine([patient])))


def cluster(machine: Worker, address: str, mode: str = "client") -> None:
    """Let the connection mean a standalone master whose web UI is at an address."""
    extra = {"web-port": urlsplit(address).port, "deploy-mode": mode}
    connection = {"conn_type": "spark", "host": "spark://127.0.0.1:7077", "extra": extra}
    machine.set(AIRFLOW_CONN_SPARK_DEFAULT=json.dumps(connection))


def test_a_machine_in_order_has_no_error_and_is_described(machine: Worker) -> None:
    findings = examine([LIGHT])
    assert said(findings) == said(findings, "warning") == []
    told = "\n".join(said(findings, "ok"))
    assert (
        "connection: 'spark_default' of AIRFLOW_CONN_SPARK_DEFAULT is the Spark master local[2],"
        " deploy mode client, 2 tasks at once"
    ) in told
    assert f"environment: {machine.home}/bin/spark-submit: Java " in told
    assert f"packages: {machine.home}/bin/python: Python 3.11.7, pyspark 4.3.0, torch" in told
    assert f"store: AIRFLOW__TRAINYARD__STORE is '{machine.store}': it can be written" in told
    assert "mlflow.db': the database will be made" in told
    assert list(machine.store.iterdir()) == [], "the probe of the store is gone"


def test_the_real_import_error_is_told(machine: Worker) -> None:
    broken = machine.home / "modules"
    broken.mkdir()
    (broken / "wave.py").write_text("raise ImportError('libwave.so.6: cannot open')")
    patient = replace(LIGHT, env_vars={"PYTHONPATH": str(broken), "PYSPARK_PYTHON": sys.executable})
    assert "cannot import wave: ImportError: libwave.so.6: cannot open. fix: Install" in errors_of(
        patient
    )


def test_the_jobs_own_library_says_what_can_be_imported(machine: Worker) -> None:
    """As in a session's report: a package without `__version__` has that of its distribution."""
    mine = machine.home / "modules"
    (mine / "quiet-1.5.dist-info").mkdir(parents=True)
    (mine / "quiet-1.5.dist-info" / "METADATA").write_text("Name: quiet\nVersion: 1.5\n")
    (mine / "quiet.py").write_text("print('not the answer')")
    patient = replace(
        LIGHT,
        job=Quiet(run_dir="/r"),
        env_vars={"PYTHONPATH": str(mine), "PYSPARK_PYTHON": sys.executable},
    )
    machine.set(PYTHONPATH="")
    assert ", quiet 1.5" in "\n".join(said(examine([patient]), "ok"))


def test_another_python_of_the_workers_is_told(machine: Worker) -> None:
    old = machine.home / "old-python"
    write_python(old, "3.10.2")
    driver = str(machine.home / "bin/python")
    variables = {"PYSPARK_PYTHON": str(old), "PYSPARK_DRIVER_PYTHON": driver}
    found = errors_of(replace(LIGHT, env_vars=variables))
    assert f"PYSPARK_PYTHON is '{old}', a Python 3.10.2, and the driver's is '{driver}'" in found


def test_a_missing_spark_submit_and_an_unknown_connection_are_told(machine: Worker) -> None:
    assert "there is no 'spark-submit' on PATH" in errors_of(
        replace(LIGHT, env_vars={"PATH": str(Path(shutil.which("java") or "").parent)})
    )
    assert "connection 'sp_typo' is not defined" in errors_of(replace(LIGHT, conn_id="sp_typo"))


def test_what_a_cluster_does_not_hold_is_told_with_the_arithmetic(machine: Worker) -> None:
    with web_ui(idle((2, 4096))) as address:
        cluster(machine, address, "cluster")
        found = errors_of(TRAIN)
    assert "train: train_horovod needs 1 cores, 1024 MiB for its driver and 2 cores" in found
    assert "1 + 2 = 3 cores" in found
    assert "Set ranks to 1 or less" in found


def test_cluster_mode_needs_neither_java_nor_spark_here(
    machine: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with web_ui(idle((4, 4096))) as address:
        cluster(machine, address, "cluster")
        findings = examine([TRAIN])
    assert said(findings) == []
    assert any("4 cores" in line for line in said(findings, "ok"))


def test_a_master_that_is_not_there_is_told(machine: Worker) -> None:
    cluster(machine, "http://127.0.0.1:9", "cluster")
    findings = examine([TRAIN])
    assert said(findings) == [], "a job is submitted without it too"
    assert "no web UI of a standalone Spark master answers" in "\n".join(said(findings, "warning"))


def test_a_master_that_has_just_started_is_a_warning(machine: Worker) -> None:
    for starting in (idle(), idle((9, 9999), status="RECOVERING")):
        with web_ui(starting) as address:
            cluster(machine, address, "cluster")
            findings = examine([TRAIN])
        assert said(findings) == []
        assert any("train: it will wait: " in line for line in said(findings, "warning"))


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"spark.dynamicAllocation.enabled": "true"}, "must start together on executors that stay"),
        (
            {"spark.task.resource.gpu.amount": "2", "spark.executor.resource.gpu.amount": "1"},
            "no executor could run a task. fix: Set spark.executor.resource.gpu.amount to 2",
        ),
    ],
)
def test_settings_of_spark_that_exclude_the_job_are_told(
    machine: Worker, conf: dict[str, str], message: str
) -> None:
    assert message in errors_of(replace(TRAIN, conf=conf))
    defaults = machine.home / "conf"
    defaults.mkdir()
    lines = [f"{name} {value}" for name, value in conf.items()]
    (defaults / "spark-defaults.conf").write_text("# mine\n" + "\n".join(lines))
    assert message in errors_of(replace(TRAIN, env_vars={"SPARK_CONF_DIR": str(defaults)}))


def test_a_properties_file_of_the_workers_is_not_looked_for_here(machine: Worker) -> None:
    patient = replace(TRAIN, properties_file="/on/the/workers.conf")
    assert "properties_file is '/on/the/workers.conf', which cannot be read" in errors_of(patient)
    with web_ui(idle((4, 4096))) as address:
        cluster(machine, address, "cluster")
        assert errors_of(patient) == ""


def test_a_gpu_that_pytorch_cannot_use_is_told() -> None:
    amounts = ("spark.task.resource.gpu.amount", "spark.executor.resource.gpu.amount")
    found = errors_of(replace(TRAIN, conf=dict.fromkeys(amounts, "1")))
    assert "gpu.amount is 1, and the jobs' PyTorch is built without CUDA" in found


def test_a_gpu_that_spark_does_not_give_is_told() -> None:
    job = TrainHorovod(run_dir="/r", dataset="d", model_name="m", device="gpu")
    found = errors_of(replace(TRAIN, job=job))
    assert "setting 'device' is 'gpu', and spark.task.resource.gpu.amount is not set" in found


def test_a_source_around_or_in_the_store_is_told(machine: Worker) -> None:
    def prepare(source: str) -> Patient:
        job = Prepare(run_dir="/r", source=source, features=("x",), label="y")
        return replace(LIGHT, job=job)

    assert f"the store '{machine.store}/' lies in it" in errors_of(prepare(str(machine.home)))
    for scheme in ("", "file://"):
        inside = examine([prepare(f"{scheme}{machine.store}/a/b")])
        assert "retention removes old runs" in "\n".join(said(inside, "warning"))
    joined = Prepare(
        run_dir="/r",
        tables={"near": "sample:flights", "far": str(machine.home)},
        query="SELECT * FROM near JOIN far",
        features=("x",),
        label="y",
    )
    found = errors_of(replace(LIGHT, job=joined))
    assert f"setting 'tables' for 'far' is '{machine.home}', and the store" in found
    apart = examine([prepare(f"{machine.home}/sto")]), examine([prepare("sample:mnist")])
    assert not any("the store" in line for found in apart for line in said(found, "warning"))


def test_a_store_that_cannot_be_written_is_told(machine: Worker) -> None:
    (machine.home / "file").touch()
    machine.set(AIRFLOW__TRAINYARD__STORE=f"{machine.home}/file/store")
    found = errors_of(LIGHT)
    assert f"store: the directory '{machine.home}/file/store' cannot be written" in found


def test_a_registry_is_asked(machine: Worker) -> None:
    machine.set(MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert "http://127.0.0.1:9', where nothing answers" in errors_of(LIGHT)
    with web_ui({}) as address:
        machine.set(MLFLOW_TRACKING_URI=address)
        assert errors_of(LIGHT) == ""
    machine.set(MLFLOW_TRACKING_URI="postgresql://me:open-sesame@127.0.0.1:9/mlflow")
    found = errors_of(LIGHT)
    assert "the database '127.0.0.1:9/mlflow', which cannot be opened" in found
    assert "open-sesame" not in found


def pipeline(**train: Any) -> DAG:
    """The doctor and two jobs, of which the second reads the first one's result."""
    with DAG("a_dag", params=trigger_params(TrainHorovod, "ranks", "optimizer")) as dag:
        DoctorOperator(task_id="doctor")
        job = TrainHorovod(
            dataset=result("prepare", "outputs", "dataset"),
            ranks=param("ranks"),
            optimizer=param("optimizer"),
            model_name="m",
            **train,
        )
        conf = {"spark.a": "b", "spark.executor.memory": "9g"}
        SparkJobOperator(task_id="train", job=job, executor_memory="2g", conf=conf)
    return dag


def test_settings_are_checked_together_before_results_are_there() -> None:
    (found,), refused = patients_of(pipeline(), {"params": {"ranks": 2, "optimizer": "SGD"}})
    assert refused == []
    assert isinstance(found.job, TrainHorovod)
    assert (found.job.ranks, found.job.dataset) == (2, "later-dataset")
    assert found.conf == {"spark.executor.memory": "2g", "spark.a": "b"}, "as in --executor-memory"
    _, refused = patients_of(pipeline(), {"params": {"ranks": 2, "optimizer": "Adam"}})
    assert "train: setting 'optimizer_params' is {'momentum': 0.9}: Adam has no" in str(refused[0])


def test_arguments_of_another_type_are_told(context: MakeContext) -> None:
    dag = pipeline()
    train: Any = dag.get_task("train")
    train.conf, train.env_vars = "{{ params.conf }}", ["TOKEN=hidden"]
    (found,), refused = patients_of(dag, {"params": {"ranks": 2, "optimizer": "SGD"}})
    assert "train: conf of the operator is of type str, and no mapping" in str(refused[0])
    assert found.env_vars == {}


def doctor(context: MakeContext, **params: Any) -> Any:
    task: Any = pipeline().get_task("doctor")
    told = context("doctor") | {"params": {"ranks": 2, "optimizer": "SGD", **params}}
    told["dag_run"] = SimpleNamespace(conf=params)
    return task.execute(told)


def test_a_value_that_no_field_takes_is_told(
    context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AirflowFailException, match=r"gives 'rank', which is no field.*'ranks'"):
        doctor(context, rank=3)
    assert doctor(context, note="for the record")["warning"] == 1
    assert "gives 'note', which is no field of this DAG" in capsys.readouterr().out


def test_a_source_that_is_not_there_is_told(tmp_path: Path) -> None:
    def found(**settings: Any) -> str:
        job = Prepare.from_mapping({"run_dir": "/r", "features": ["a"], "label": "b", **settings})
        master = resolve("spark_default", deploy_mode=None, binary=None)
        return "\n".join(said(list(look_at_sources(replace(LIGHT, job=job), master))))

    there = tmp_path / "a.csv"
    there.touch()
    for good in (str(there), f"file://{there}", f"{tmp_path}/*.json", "sample:mnist", "s3://b/a"):
        assert found(source=good) == ""
    gone = f"{tmp_path}/gone.csv"
    assert f"setting 'source' is '{gone}': nothing is there" in found(source=gone)
    tables = {"a": str(there), "b": gone}
    assert f"setting 'tables.b' is '{gone}'" in found(tables=tables, query="SELECT * FROM a")


def test_the_first_task_fails_the_run_on_an_error_and_not_on_a_warning(
    context: MakeContext, machine: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.set(AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[999]"}')
    assert doctor(context)["warning"] == 1
    assert "and this machine has" in capsys.readouterr().out
    with pytest.raises(AirflowFailException, match=r"cause: train: train_horovod runs 1000 tasks"):
        doctor(context, ranks=1000)
    assert "it can be written" in capsys.readouterr().out, "all that was found is in the log"


def test_an_error_that_may_be_over_soon_leaves_a_retry(
    context: MakeContext, machine: Worker
) -> None:
    with web_ui({}, 503) as address:
        for uri, message in (("http://127.0.0.1:9", "nothing answers"), (address, "HTTP 503")):
            machine.set(MLFLOW_TRACKING_URI=uri)
            with pytest.raises(AirflowException, match=f"cause: registry: .*{message}") as raised:
                doctor(context)
            assert not isinstance(raised.value, AirflowFailException)
    with pytest.raises(AirflowFailException, match=r"cause: train: .* 1000 .*1 more errors"):
        doctor(context, ranks=1000)


def test_it_can_be_switched_off(context: MakeContext, machine: Worker) -> None:
    machine.set(AIRFLOW__TRAINYARD__DOCTOR="False")
    assert doctor(context, ranks=1000) == {}
