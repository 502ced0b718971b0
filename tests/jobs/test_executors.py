"""What executors are compared by; test_shipping has one that is really asked."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

import pytest

from trainyard.errors import JobError
from trainyard.executors import Report, _cannot_run, check_driver_host, compare, report, seconds_of

DRIVER = Report(where="a", python="3.11.7", versions={"torch": "2.13.0+cpu", "x": ""}, errors={})


def other(**changes: Any) -> Report:
    return dataclasses.replace(DRIVER, where="w1 (/usr/bin/python3)", **changes)


def test_equal_environments_pass() -> None:
    compare(DRIVER, [other(), other(python="3.11.9"), other(versions={"torch": "2.13.0+cu130"})])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"python": "3.12.1"}, r"w1 \(/usr/bin/python3\) runs Python 3\.12\.1, and the driver 3"),
        ({"versions": {"torch": "2.12.0"}}, r"has torch 2\.12\.0, and the driver 2\.13\.0"),
        (
            {"versions": {}, "errors": {"torch": "ImportError: libcudart.so.13"}},
            r"cannot import torch: ImportError: libcudart\.so\.13\.",
        ),
    ],
)
def test_a_difference_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message) as raised:
        compare(DRIVER, [other(), other(**changes)])
    assert "make archive" in raised.value.fix


def test_a_module_that_the_driver_lacks_too_is_the_jobs_to_miss() -> None:
    driver = dataclasses.replace(DRIVER, errors={"y": "ModuleNotFoundError: y"})
    compare(driver, [other(errors={"y": "ModuleNotFoundError: y"})])


def test_a_report_has_the_real_import_error(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package.py").write_text("raise OSError('libfoo.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    found = report(["json", "pyarrow", "broken_package", "no_such_package"])
    assert found.python == platform.python_version()
    assert found.versions["json"] == "2.0.9"
    assert found.versions["pyarrow"].count(".") == 2
    assert found.errors == {
        "broken_package": "OSError: libfoo.so.1: cannot open",
        "no_such_package": "ModuleNotFoundError: No module named 'no_such_package'",
    }


@pytest.mark.parametrize(
    ("master", "host"),
    [
        ("spark://10.0.0.5:7077", "localhost"),
        ("yarn", "127.0.0.1"),
        ("k8s://https://h", "127.0.1.1"),
    ],
)
def test_a_driver_at_a_loopback_address_is_refused(master: str, host: str) -> None:
    with pytest.raises(JobError, match=rf"spark\.driver\.host is '{host}'.*SPARK_LOCAL_IP"):
        check_driver_host(master, host)


def test_a_master_on_this_machine_reaches_it() -> None:
    check_driver_host("spark://127.0.0.1:7077", "127.0.0.1")
    check_driver_host("spark://10.0.0.5:7077", "10.0.0.9")
    check_driver_host("local-cluster[1,1,512]", "localhost")


def test_what_keeps_workers_from_running_is_picked_from_sparks_account_of_it() -> None:
    text = (
        "An error occurred while calling o1.collect\n"
        " org.apache.spark.SparkException: Job aborted due to stage failure\n"
        " pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
        "worker has different version: 3.10 than that in driver: 3.11\n"
        "  at org.apache.spark.api.python"
    )
    assert "[PYTHON_VERSION_MISMATCH] Python in worker" in _cannot_run(text).cause


@pytest.mark.parametrize("text", ["300s", "", "-1", "nan"])
def test_a_timeout_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(JobError, match=f"executorTimeout is '{text}': it is no number of seconds"):
        seconds_of(text)
