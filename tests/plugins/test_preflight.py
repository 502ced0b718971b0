"""What a submission needs on the worker's machine, found or named as missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainyard.errors import JobError
from trainyard_airflow.preflight import check_files, find_submitter


class Machine:
    """A PATH of one folder, with the programs put there."""

    def __init__(self, home: Path) -> None:
        self.bin = home / "env" / "bin"
        self.bin.mkdir(parents=True)
        self.environment = {"PATH": str(self.bin)}
        self.add("sh", f'exec {shutil.which("sh")} "$@"')

    def add(self, name: str, does: str = "true") -> Path:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)
        return path

    def add_java(self, version: str) -> None:
        self.add("java", f"echo 'openjdk version \"{version}\"' >&2")

    def add_pyspark(self, version: str) -> None:
        jars = self.bin.parent / "lib" / "python3.11" / "site-packages" / "pyspark" / "jars"
        jars.mkdir(parents=True)
        (jars / f"spark-core_2.13-{version}.jar").touch()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_everything_is_found_and_versioned(machine: Machine) -> None:
    submit, python = machine.add("spark-submit"), machine.add("python")
    machine.add_java("17.0.15")
    machine.add_pyspark("4.3.0")
    found = find_submitter("spark-submit", machine.environment)
    assert (found.spark_submit, found.python) == (str(submit), str(python))
    assert (found.spark, found.java) == ("4.3.0", 17)


def test_pysparks_own_variables_name_the_python(machine: Machine) -> None:
    machine.add("spark-submit")
    machine.add("python")
    machine.add_java("17.0.15")
    mine = machine.add("mine")
    environment = {**machine.environment, "PYSPARK_PYTHON": str(mine)}
    assert find_submitter("spark-submit", environment).python == str(mine)
    with pytest.raises(JobError, match=r"'/no/python' is not a program.*Set PYSPARK_PYTHON"):
        find_submitter("spark-submit", {**environment, "PYSPARK_DRIVER_PYTHON": "/no/python"})


def test_a_python_in_an_archive_is_the_executors_alone(machine: Machine) -> None:
    machine.add("spark-submit")
    machine.add_java("17.0.15")
    python = machine.add("python")
    environment = {**machine.environment, "PYSPARK_PYTHON": "./environment/bin/python"}
    assert find_submitter("spark-submit", environment).python == str(python)


def test_the_provider_alone_has_no_spark_submit(machine: Machine) -> None:
    machine.add_java("17.0.15")
    with pytest.raises(JobError, match=r"no 'spark-submit' on PATH .*jobs' environment"):
        find_submitter("spark-submit", machine.environment)


def test_a_machine_without_java_is_named(machine: Machine) -> None:
    machine.add("spark-submit")
    machine.add("python")
    with pytest.raises(JobError, match=r"no java on PATH, and JAVA_HOME is not set.*openjdk-17"):
        find_submitter("spark-submit", machine.environment)
    with pytest.raises(JobError, match="/nowhere/bin/java does not run"):
        find_submitter("spark-submit", {**machine.environment, "JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize(
    ("java", "spark", "refused"),
    [("11.0.2", "4.3.0", True), ("1.8.0_392", "3.5.1", False), ("21", "4.0.0", False)],
)
def test_java_must_be_new_enough_for_spark(
    machine: Machine, java: str, spark: str, refused: bool
) -> None:
    machine.add("spark-submit")
    machine.add("python")
    machine.add_java(java)
    machine.add_pyspark(spark)
    if refused:
        with pytest.raises(JobError, match=r"Spark 4\.3\.0 needs Java 17 or later; .* Java 11"):
            find_submitter("spark-submit", machine.environment)
    else:
        assert find_submitter("spark-submit", machine.environment).spark == spark


def test_a_file_that_should_travel_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    (tmp_path / "env.tar.gz").touch()
    there = {
        "py_files": f"{tmp_path}/mine.py, s3://bucket/theirs.py",
        "archives": f"{tmp_path}/env.tar.gz#environment",
        "files": None,
        "jars": f"{tmp_path}/*.jar",
    }
    check_files(there)
    with pytest.raises(JobError, match=r"py_files of the operator names '.*/gone.py'"):
        check_files({**there, "py_files": f"{tmp_path}/mine.py,{tmp_path}/gone.py"})
