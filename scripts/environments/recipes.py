"""The steps that make each environment, from nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from environments import horovod
from environments.steps import StepFailedError, Steps

ROOT = Path(__file__).resolve().parents[2]
VENVS = ROOT / ".venv"
TOOLS = VENVS / "tools"
WHEELS = ROOT / ".cache/wheels"
TOOLS_PINS = ROOT / "scripts/requirements.txt"
AIRFLOW_LOCK = ROOT / "requirements.txt"
JOBS_LOCK = ROOT / "jobs/requirements.txt"
TESTS_LOCK = ROOT / "tests/requirements.txt"


def make_tools(python: str, steps: Steps) -> None:
    """Make the environment that makes the others: uv, CMake and the linters."""
    _create(TOOLS, python, steps)
    with steps.step("tools: install uv, CMake, Ruff and mypy"):
        steps.run([f"{TOOLS}/bin/pip", "install", f"--requirement={TOOLS_PINS}"])


def make_airflow(python: str, steps: Steps) -> None:
    """Make the scheduler's environment from its lock."""
    venv = VENVS / "airflow"
    _create(venv, python, steps)
    with steps.step("airflow: install Airflow and its provider"):
        _install_locks(venv, steps, AIRFLOW_LOCK, TESTS_LOCK)


def make_jobs(python: str, torch_backend: str, steps: Steps) -> None:
    """Make the Spark environment: PyTorch, the rest of its lock, and Horovod built against both."""
    venv = VENVS / "jobs"
    _create(venv, python, steps)
    with steps.step(f"jobs: install PyTorch ({torch_backend})"):
        _install_torch(venv, torch_backend, steps)
    with steps.step("jobs: install Spark, XGBoost and MLflow"):
        excluded = venv / "excluded.txt"
        excluded.write_text("horovod\n")
        _install_locks(venv, steps, JOBS_LOCK, TESTS_LOCK, options=[f"--excludes={excluded}"])
    wheel = horovod.wheel(_pinned("horovod"), venv / "bin/python", TOOLS, WHEELS, steps)
    with steps.step("jobs: install Horovod and try it"):
        _install(venv, steps, "--no-deps", str(wheel))
        steps.run([f"{venv}/bin/python", "-c", "import horovod.torch as hvd; hvd.init()"])


def _create(venv: Path, python: str, steps: Steps) -> None:
    with steps.step(f"{venv.name}: create the environment"):
        steps.run([python, "-m", "venv", str(venv)])


def _install_torch(venv: Path, backend: str, steps: Steps) -> None:
    """Install the pinned PyTorch: alone for the CPU, or with the CUDA libraries it needs.

    XGBoost comes with the latter, because it brings one of its own.
    """
    torch = _pinned("torch").split()[0]
    if backend == "cpu":
        try:
            # pip knows the places that a machine's owner has configured; uv does not look there.
            steps.run([f"{venv}/bin/pip", "install", "--no-deps", f"{torch}+cpu"])
        except StepFailedError:
            _install(venv, steps, "--no-deps", "--torch-backend=cpu", torch)
    else:
        wanted = [f"--constraints={JOBS_LOCK}", torch, _pinned("xgboost").split()[0]]
        if backend != "cuda":
            # PyTorch's own index has other files than the ones that the lock's hashes are for.
            wanted += [f"--torch-backend={backend}", "--no-verify-hashes"]
        _install(venv, steps, *wanted)


def _install_locks(venv: Path, steps: Steps, *locks: Path, options: Sequence[str] = ()) -> None:
    """Install `locks`, which are complete, hence without dependencies."""
    requirements = [f"--requirement={lock}" for lock in locks]
    _install(venv, steps, "--no-deps", "--require-hashes", *options, *requirements)


def _install(venv: Path, steps: Steps, *arguments: str) -> None:
    steps.run([f"{TOOLS}/bin/uv", "pip", "install", f"--python={venv}/bin/python", *arguments])


def _pinned(package: str) -> str:
    """Answer with the jobs' lock's `package==version` and the hashes that follow it."""
    lines = re.search(
        rf"^{package}==\S+(?: \\\n +--hash=\S+)*", JOBS_LOCK.read_text(), re.MULTILINE
    )
    if lines is None:
        raise StepFailedError(f"{JOBS_LOCK} has no pin for {package}: run `make lock`")
    return lines[0]
