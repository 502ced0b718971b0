"""Whether this machine can submit to Spark: finds the programs that it takes, and their versions.

Airflow's environment has the Spark provider and its pyspark-client, but no spark-submit.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import JobError
from trainyard.store import is_missing_here

_JAVA_OF_SPARK = {3: 8, 4: 17}
"""Oldest Java of each major version of Spark."""

_JAR = re.compile(r"spark-core_[\d.]+-(\d+\.\d+\.\d+.*)\.jar")


@dataclass(frozen=True, kw_only=True)
class Submitter:
    """The programs that a submission uses.

    Attributes:
        spark_submit: full path of the program that submits.
        spark: version of its Spark; empty where it cannot be told without starting it.
        java: major version of the Java that it will find.
        python: full path of the Python that runs the driver.
    """

    spark_submit: str
    spark: str
    java: int
    python: str


def check_files(files: Mapping[str, str | None]) -> None:
    """Check that the files which travel with a job are there.

    Args:
        files: comma-separated paths and URIs, by the operator's argument that names them; only
            paths on this machine are looked at.

    Raises:
        JobError: one is not there.
    """
    for argument, paths in files.items():
        for given in filter(None, (part.strip() for part in (paths or "").split(","))):
            path = given.partition("#")[0]  # an archive's alias follows
            if is_missing_here(path):
                raise JobError(
                    f"{argument} of the operator names {given!r}, and nothing is there.",
                    "Correct the path; it is looked for on the machine of Airflow's worker.",
                )


def find_submitter(binary: str, environment: Mapping[str, str]) -> Submitter:
    """Find what a submission needs in the environment that it will have.

    Raises:
        JobError: a program is missing or too old.
    """
    path = environment.get("PATH", "")
    spark_submit = shutil.which(binary, path=path)
    if spark_submit is None:
        raise JobError(
            f"there is no {binary!r} on PATH ({path}).",
            "Put the bin folder of the jobs' environment, or of a Spark distribution, on the PATH"
            " of Airflow's worker; the Spark provider brings none.",
        )
    spark = _spark_version(Path(spark_submit), environment)
    java = _java_version(environment)
    oldest = _JAVA_OF_SPARK.get(int(spark.split(".")[0]), 0) if spark else 0
    if java < oldest:
        raise JobError(
            f"Spark {spark} needs Java {oldest} or later; this machine runs Java {java}.",
            f"Install Java {oldest} (Debian: openjdk-{oldest}-jre-headless), or set JAVA_HOME.",
        )
    return Submitter(
        spark_submit=spark_submit,
        spark=spark,
        java=java,
        python=_driver_python(Path(spark_submit), environment),
    )


def _spark_version(spark_submit: Path, environment: Mapping[str, str]) -> str:
    """The version in the name of a jar: asking spark-submit itself would take 2 seconds."""
    roots = [Path(environment["SPARK_HOME"])] if environment.get("SPARK_HOME") else []
    for place in (spark_submit.absolute(), spark_submit.resolve()):
        roots += [
            place.parent.parent,
            *place.parent.parent.glob("lib/python*/site-packages/pyspark"),
        ]
    for root in roots:
        for jar in root.glob("jars/spark-core_*.jar"):
            if match := _JAR.fullmatch(jar.name):
                return match[1]
    return ""


def _java_version(environment: Mapping[str, str]) -> int:
    home = environment.get("JAVA_HOME")
    java = (
        str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment["PATH"])
    )
    if java is None:
        raise JobError(
            "there is no java on PATH, and JAVA_HOME is not set.",
            "Install Java 17 (Debian: openjdk-17-jre-headless) on Airflow's worker.",
        )
    try:
        answer = subprocess.run(
            [java, "-version"], env=dict(environment), capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(
            f"{java} does not run: {error}.", "Set JAVA_HOME to a folder that holds bin/java."
        ) from error
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        raise JobError(f"{java} -version does not name a version.", "Set JAVA_HOME to a Java 17.")
    return int(match[1])


def _driver_python(spark_submit: Path, environment: Mapping[str, str]) -> str:
    """The Python of the driver: PySpark's own variables, or the one beside pip's spark-submit."""
    workers = environment.get("PYSPARK_PYTHON", "")
    # A relative one lies in an archive that only executors unpack.
    in_archive = workers.startswith("./")
    named = environment.get("PYSPARK_DRIVER_PYTHON") or ("" if in_archive else workers)
    beside = spark_submit.parent / "python"
    python = named or (str(beside) if beside.exists() else "python3")
    found = shutil.which(python, path=environment["PATH"])
    if found is None:
        raise JobError(
            f"the driver's Python {python!r} is not a program.",
            "Set PYSPARK_PYTHON to the Python of the jobs' environment.",
        )
    return found
