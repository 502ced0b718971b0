"""What may import what: Airflow's processes stay light, and the jobs never see Airflow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.dags.conftest import ROOT

HEAVY = {
    "pyspark",
    "torch",
    "xgboost",
    "mlflow",
    "optuna",
    "horovod",
    "pandas",
    "numpy",
    "pyarrow",
    "sklearn",
}


def imported_by(statement: str, *, plugins: bool = True) -> set[str]:
    """The top-level modules in a fresh interpreter after a statement."""
    program = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    folders = [ROOT / "jobs", *([ROOT / "plugins"] if plugins else [])]
    path = os.pathsep.join(map(str, folders))
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(answer.stdout.splitlines()[-1].split())


def test_the_check_would_see_a_heavy_import() -> None:
    assert "numpy" in imported_by("import numpy")


@pytest.mark.parametrize("file", sorted((ROOT / "dags").glob("*.py")), ids=lambda path: path.stem)
def test_a_dag_imports_nothing_heavy(file: Path) -> None:
    modules = imported_by(f"import runpy; runpy.run_path({str(file)!r})")
    assert "airflow" in modules
    assert not modules & HEAVY


def test_the_plugin_imports_nothing_heavy() -> None:
    modules = imported_by("import trainyard_plugin")
    assert "trainyard_plugin" in modules
    assert not modules & HEAVY


def test_the_contract_is_the_standard_library_only() -> None:
    modules = imported_by("import trainyard.specs, trainyard.layout", plugins=False)
    assert modules - {"trainyard", "__main__"} <= set(sys.stdlib_module_names) | startup()


def startup() -> set[str]:
    """What an interpreter of this environment has before it imports anything."""
    return imported_by("pass", plugins=False)


def test_the_jobs_do_not_import_airflow() -> None:
    for file in (ROOT / "jobs").rglob("*.py"):
        for line in file.read_text().splitlines():
            words = line.split()
            assert words[:1] not in (["import"], ["from"]) or not words[1].startswith("airflow"), (
                f"{file}: {line}"
            )


def test_airflow_scans_one_plugin_and_does_not_import_the_package_twice() -> None:
    program = (
        "from airflow.sdk.plugins_manager import _get_plugins\n"
        "plugins, errors = _get_plugins()\n"
        "assert not errors, errors\n"
        "assert [p.name for p in plugins].count('trainyard') == 1\n"
        "import sys\n"
        "files = [getattr(m, '__file__', None) or '' for m in list(sys.modules.values())]\n"
        f"print(*sorted(f for f in files if f.startswith({str(ROOT / 'plugins')!r})))"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'jobs'}{os.pathsep}{ROOT / 'plugins'}",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
    }
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    files = answer.stdout.splitlines()[-1].split()
    assert len(files) == len(set(files)), "a module was imported twice, by two names"
    assert [f for f in files if "trainyard_airflow" not in f] == [
        str(ROOT / "plugins" / "trainyard_plugin.py")
    ]
