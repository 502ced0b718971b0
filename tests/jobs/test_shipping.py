"""One's own modules and packages on executors that have nothing but Spark and Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark

from trainyard import session

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent


def test_no_thread_goes_on_before_the_package_is_there() -> None:
    """Spark ML's cross validation fits in threads; each ships the package to the same session."""
    added: list[str] = []
    begun = threading.Event()

    def add(path: str) -> None:
        begun.set()
        time.sleep(0.2)
        added.append(path)

    context: Any = SimpleNamespace(applicationId="app-test-threads", addPyFile=add)
    first = threading.Thread(target=session.ship, args=(context,))
    first.start()
    try:
        assert begun.wait(20)
        session.ship(context)
        assert len(added) == 1
    finally:
        first.join()
        session._SHIPPED.pop(context.applicationId).cleanup()


def wheel(folder: Path, name: str) -> Path:
    """A wheel of one module."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


def environment_with(folder: Path, package: str) -> Path:
    """A virtual environment in which one package is installed."""
    made = folder / "made"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    uv = [f"{ROOT}/.venv/tools/bin/uv", "pip", "install", "--quiet", f"--python={made}/bin/python"]
    subprocess.run([*uv, str(wheel(folder, package))], check=True)
    return made


def test_executors_run_the_packed_environment_and_the_users_module(tmp_path: Path) -> None:
    """On an executor in its own process, which sees neither this environment nor this folder."""
    archive = tmp_path / "out" / "environment.tar.gz"
    made = environment_with(tmp_path, "packed_package")
    pack = [sys.executable, f"{ROOT}/scripts/archive.py", f"--environment={made}"]
    added = wheel(tmp_path, "added_package")
    subprocess.run([*pack, f"--output={archive}", f"--add={added}"], check=True)
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    made.rename(tmp_path / "gone")  # what is packed must not need what it was made from

    (tmp_path / "my_module.py").touch()
    (tmp_path / "away").mkdir()
    spark = tmp_path / "spark"  # its workers write into SPARK_HOME
    spark.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (spark / part.name).symlink_to(part)
    submit = [f"{spark}/bin/spark-submit", "--master=local-cluster[1,1,768]"]
    options = ["--conf=spark.ui.enabled=false", "--conf=spark.executor.memory=768m"]
    options += [f"--archives={archive}#environment", f"--py-files={tmp_path}/my_module.py"]
    done = subprocess.run(
        [*submit, *options, str(HERE / "shipped_job.py"), str(tmp_path / "seen.json")],
        cwd=tmp_path / "away",
        env={
            "PATH": os.environ["PATH"],
            **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
            "SPARK_HOME": str(spark),
            "PYTHONPATH": f"{ROOT}/jobs",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": "./environment/bin/python",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["python"].endswith("/environment/bin/python")
    assert "/environment/lib/" in seen["packed_package"]
    assert "/environment/lib/" in seen["added_package"]
    assert f"{spark}/work/app-" in seen["my_module"], "it was shipped, not found"
    assert "trainyard.zip" in seen["trainyard"]
    assert (
        "cannot import pyarrow: ModuleNotFoundError: No module named 'pyarrow'" in seen["refused"]
    )
    assert "make archive" in seen["refused"]
