"""The operator with real processes: what it submits, what it believes, and what it says."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.plugins.conftest import ROOT, Worker

from trainyard import rundir, store
from trainyard.claims import Claim
from trainyard.specs import Prepare, RunDirectory, TrainHorovod, TrainXGBoost
from trainyard_airflow import masking
from trainyard_airflow.operators.spark_job import SparkJobOperator

MakeContext = Callable[..., Any]


def prepare(source: str = "sample:mnist", **arguments: Any) -> SparkJobOperator:
    job = Prepare(source=source, features=("pixels",), label="label")
    return SparkJobOperator(task_id="prepare", job=job, **arguments)


def test_it_returns_the_result_and_tells_the_outlets(
    worker: Worker, context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = Asset("dataset")
    told = context()
    result = prepare(outlets=[dataset]).execute(told)
    assert result["outputs"] == {"dataset": worker.run_dir() + "/data"}
    assert result["run_dir"] == worker.run_dir()
    assert "settings" not in result
    extra = told["outlet_events"][dataset].extra
    assert extra["outputs.dataset"] == worker.run_dir() + "/data"
    assert extra["rows.train"] == 3
    assert not any(isinstance(value, Mapping) for value in extra.values())
    assert json.loads(json.dumps(extra)) == extra
    log = capsys.readouterr().out
    assert "Spark master local[2], deploy mode client" in log
    assert "prepare  100% part 4/4  rows 300 share 0.25" in log
    assert "4 parts were read" in log
    assert "the source is sample:mnist" in log


def test_the_job_parses_what_the_operator_submits(worker: Worker, context: MakeContext) -> None:
    prepare(source="s3://a b/c,'d'").execute(context())
    words = (worker.home / "submit.argv").read_text().splitlines()
    program = next(word for word in words if word.endswith("prepare.py"))
    job = Prepare.parse(words[words.index(program) + 1 :])
    assert job.to_mapping() == {
        **Prepare(source="s3://a b/c,'d'", features=("pixels",), label="label").to_mapping(),
        "run_dir": worker.run_dir(),
        "datasets": str(worker.home / "store/datasets"),
    }


def test_the_driver_gets_what_it_needs_and_none_of_airflows_secrets(
    worker: Worker, context: MakeContext
) -> None:
    worker.set(AIRFLOW__CORE__FERNET_KEY="top", AIRFLOW_VAR_X="y", PYTHONPATH=f"{ROOT}/jobs:/mine")
    prepare(env_vars={"AWS_SECRET_ACCESS_KEY": "hidden-in-env"}).execute(context())
    got = json.loads((worker.home / "environment.json").read_text())
    assert got["MLFLOW_TRACKING_URI"] == f"sqlite:///{worker.store}/mlflow.db"
    assert got["PYTHONPATH"].endswith(f"programs:{ROOT}/jobs:/mine")
    assert got["AWS_SECRET_ACCESS_KEY"] == "hidden-in-env"
    assert not [
        name for name in got if name.startswith(("AIRFLOW__", "AIRFLOW_CONN", "AIRFLOW_VAR"))
    ]
    assert "hidden-in-env" not in (worker.home / "submit.argv").read_text()


@pytest.mark.parametrize(
    ("behaviour", "error", "message"),
    [
        ("waver", AirflowException, "cause: the store is full. fix: Free some space."),
        ("swallow", AirflowException, "ended with exit code 0 and wrote no result"),
        ("crash", AirflowException, "ended with exit code 1 before it could say why"),
        ("die", AirflowException, "was killed by signal 9"),
    ],
)
def test_a_job_without_a_result_has_failed(
    worker: Worker, context: MakeContext, behaviour: str, error: type[Exception], message: str
) -> None:
    worker.behave(behaviour)
    with pytest.raises(error) as raised:
        prepare().execute(context())
    assert message in str(raised.value)
    assert not isinstance(raised.value, AirflowFailException), "a retry continues"
    assert worker.processes() == []


def test_a_cause_that_no_retry_cures_is_not_retried(worker: Worker, context: MakeContext) -> None:
    worker.behave("fail")
    with pytest.raises(AirflowFailException) as raised:
        prepare().execute(context())
    assert str(raised.value) == "cause: the source has no rows. fix: Give one that has."


def test_a_directory_that_another_driver_claims_first_is_tried_again(
    worker: Worker, context: MakeContext
) -> None:
    worker.behave("outrun")
    with pytest.raises(AirflowException, match="is claimed by a live driver") as raised:
        prepare().execute(context())
    assert not isinstance(raised.value, AirflowFailException)


def test_a_job_that_ends_badly_after_its_result_has_succeeded(
    worker: Worker, context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.behave("stumble")
    assert prepare().execute(context())["claim"] == 1
    assert "wrote its result and then exited with 3" in capsys.readouterr().out


def test_a_retry_after_a_failure_reports_its_own_end(worker: Worker, context: MakeContext) -> None:
    worker.behave("waver")
    with pytest.raises(AirflowException, match="is full"):
        prepare().execute(context())
    worker.behave("crash")
    with pytest.raises(AirflowException, match="exit code 1"):
        prepare().execute(context())
    worker.behave("succeed")
    assert prepare().execute(context())["claim"] == 2


def test_a_result_that_an_earlier_try_wrote_is_taken(worker: Worker, context: MakeContext) -> None:
    first = prepare().execute(context())
    worker.behave("crash")
    assert prepare().execute(context()) == first


def test_a_clear_starts_anew_and_a_retry_does_not(worker: Worker, context: MakeContext) -> None:
    assert prepare().execute(context(max_tries=2))["run_dir"] == worker.run_dir(2)
    assert prepare().execute(context(max_tries=5))["run_dir"] == worker.run_dir(5)


def test_a_result_of_other_settings_is_not_taken(worker: Worker, context: MakeContext) -> None:
    prepare().execute(context())
    with pytest.raises(AirflowFailException, match="with other settings"):
        prepare(source="other").execute(context())


def test_a_mapped_task_has_a_directory_for_each_index(worker: Worker, context: MakeContext) -> None:
    result = prepare().execute(context(map_index=3))
    assert result["run_dir"].endswith("/prepare.3/g2")


def test_a_setting_that_is_not_allowed_is_not_retried(worker: Worker, context: MakeContext) -> None:
    operator = prepare()
    operator.settings["test_fraction"] = "1.5"
    with pytest.raises(AirflowFailException, match=r"cause: setting 'test_fraction' is 1\.5"):
        operator.execute(context())
    assert not (worker.home / "submit.argv").exists()
    # Its run directory says so too, under no driver's claim, where the pages read it.
    record = rundir.read_failure(worker.run_dir(), after_claim=-1)
    assert record is not None
    assert record["cause"].startswith("setting 'test_fraction' is 1.5")
    assert (record["claim"], record["permanent"]) == (0, True)


@pytest.mark.parametrize(
    ("job", "setting"),
    [
        (TrainHorovod(dataset="d", model_name="m", ranks=3), "ranks"),
        (TrainXGBoost(dataset="d", model_name="m", num_workers=3), "num_workers"),
    ],
)
def test_more_ranks_than_slots_are_refused_before_submission(
    worker: Worker, context: MakeContext, job: RunDirectory, setting: str
) -> None:
    said = rf"3 tasks at once, and .*local\[2\] has 2 slots.* Set {setting} to 2 or less"
    with pytest.raises(AirflowFailException, match=said):
        SparkJobOperator(task_id="train", job=job).execute(context("train"))
    assert not (worker.home / "submit.argv").exists()


def test_secrets_are_neither_in_the_argv_nor_in_the_log(
    worker: Worker, context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.behave("leak")
    secrets = {
        "spark.hadoop.fs.s3a.access.key": "AKIA-in-conf",
        "spark.executorEnv.API_TOKEN": "token-in-conf",
        "spark.mine.url": "jdbc:postgresql://u:url-in-conf@h/db",
    }
    with pytest.raises(AirflowException) as raised:
        prepare(conf={**secrets, "spark.ui.enabled": "false"}).execute(context())
    argv = (worker.home / "submit.argv").read_text()
    mode, properties = (worker.home / "properties").read_text().split("\n", 1)
    assert "spark.ui.enabled=false" in argv
    assert f"spark.redaction.regex={masking.REDACTION}" in argv
    assert mode == "600"
    for name, value in secrets.items():
        assert f"{name} {value}" in properties
    log = capsys.readouterr().out
    told = argv + log
    for secret in ("AKIA-in-conf", "token-in-conf", "url-in-conf"):
        assert secret not in told
    assert "open-sesame" not in log
    assert "opening jdbc:postgresql://me:******@host/db" in log
    assert "abc-def-ghi" not in str(raised.value)


def test_a_password_in_a_setting_is_refused(worker: Worker, context: MakeContext) -> None:
    task = prepare()
    task.settings["source"] = "jdbc:postgresql://u:open-sesame@h/db"  # as a template may become
    with pytest.raises(
        AirflowFailException, match=r"setting 'source' .* holds a password"
    ) as raised:
        task.execute(context())
    assert "open-sesame" not in str(raised.value)


@pytest.mark.parametrize("behaviour", ["leave", "leave quietly"])
def test_a_process_that_outlives_the_driver_does_not_hold_the_task(
    worker: Worker, context: MakeContext, behaviour: str
) -> None:
    worker.behave(behaviour)
    assert prepare().execute(context())["claim"] == 1
    assert worker.processes() == []


def test_a_missing_store_is_named(
    worker: Worker, context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW__TRAINYARD__STORE")
    with pytest.raises(AirflowFailException, match="AIRFLOW__TRAINYARD__STORE"):
        prepare().execute(context())


def test_a_store_without_a_filesystem_for_its_scheme_is_named(
    worker: Worker, context: MakeContext
) -> None:
    worker.set(AIRFLOW__TRAINYARD__STORE="nosuch://bucket/x", MLFLOW_TRACKING_URI="http://mlflow")
    with pytest.raises(AirflowFailException, match="Install the fsspec package for nosuch://"):
        prepare().execute(context())


def test_a_remote_store_needs_a_tracking_uri(worker: Worker, context: MakeContext) -> None:
    worker.set(AIRFLOW__TRAINYARD__STORE="memory://bucket/x")
    with pytest.raises(AirflowFailException, match="Set MLFLOW_TRACKING_URI"):
        prepare().execute(context())


def test_a_missing_program_is_named(worker: Worker, context: MakeContext, tmp_path: Path) -> None:
    worker.set(AIRFLOW__TRAINYARD__JOBS_FOLDER=str(tmp_path))
    with pytest.raises(AirflowFailException, match="AIRFLOW__TRAINYARD__JOBS_FOLDER"):
        prepare().execute(context())


def test_a_live_claim_of_another_machine_is_refused(worker: Worker, context: MakeContext) -> None:
    claim = {"number": 1, "host": "elsewhere", "boot": "b", "pid": 7, "started": 1, "session": 7}
    claims = worker.run_dir() + "/claims/0001"
    store.write_json(f"{claims}.json", {**claim, "submission": "", "time": 0.0})
    beats = itertools.count()
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.1):
            store.write_bytes(f"{claims}.beat", str(next(beats)).encode())

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(AirflowException, match="process 7 on elsewhere") as raised:
            prepare().execute(context())
    finally:
        stop.set()
        thread.join()
    assert not isinstance(raised.value, AirflowFailException), "it may have ended by the next try"
    assert not (worker.home / "submit.argv").exists()


def test_the_events_of_an_earlier_try_are_not_told_again(
    worker: Worker, context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = Claim.take(worker.run_dir())
    earlier = rundir.EventWriter(worker.run_dir(), claim=claim.record.number, writer="driver")
    earlier.note("from the earlier try")
    earlier.close()
    claim.release()
    prepare().execute(context())
    log = capsys.readouterr().out
    assert "4 parts were read" in log
    assert "from the earlier try" not in log


def test_the_operator_takes_no_application_of_its_own() -> None:
    with pytest.raises(TypeError, match="application"):
        prepare(application="x.py")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"conf": "{'spark.cores.max': 'hidden'}"}, "conf of the operator is of type str"),
        ({"conf": {"sparkcores.max": "2"}}, "conf .* sets 'sparkcores.max': spark-submit ignores"),
        ({"conf": {"spark.cores.max": None}}, "conf .* sets 'spark.cores.max' to nothing"),
        ({"conf": {"spark.cores.max": "None"}}, "conf .* sets 'spark.cores.max' to nothing"),
        ({"conf": {"spark.jars": ["hidden"]}}, "conf .* sets 'spark.jars' to of type list"),
        ({"env_vars": ["TOKEN=hidden"]}, "env_vars of the operator is of type list"),
        ({"env_vars": {"A=B": "hidden"}}, "env_vars .* has the variable 'A=B'"),
        ({"env_vars": {"A": "hid\0den"}}, "env_vars .* has the variable 'A'"),
        ({"env_vars": {"TOKEN": None}}, "env_vars .* sets 'TOKEN' to nothing"),
        ({"archives": ["hidden.zip"]}, "archives of the operator is of type list"),
        ({"py_files": ["hidden.py"]}, "py_files of the operator is of type list"),
        ({"properties_file": "/nowhere/x.conf"}, "properties_file .* nothing is there"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_before_submission(
    worker: Worker, context: MakeContext, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message) as raised:
        prepare(**arguments).execute(context())
    assert "hid" not in str(raised.value)
    assert not (worker.home / "submit.argv").exists()
