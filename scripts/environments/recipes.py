"""The steps that make each environment, from nothing."""

from __future__ import annotations

import re
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
    with steps.step("tools: create the environment"):
        steps.run([python, "-m", "venv", str(TOOLS)])
    with steps.step("tools: install uv, CMake, Ruff and mypy"):
        steps.run([f"{TOOLS}/bin/pip", "install", f"--requirement={TOOLS_PINS}"])


def make_airflow(python: str, steps: Steps) -> None:
    """Make the scheduler's environment from its lock."""
    venv = VENVS / "airflow"
    _create(venv, python, steps)
    with steps.step("airflow: install Airflow and its provider"):
        _install(venv, [f"--requirement={AIRFLOW_LOCK}", f"--requirement={TESTS_LOCK}"], steps)


def make_jobs(python: str, torch_backend: str, steps: Steps) -> None:
    """Make the Spark environment: PyTorch, the rest of its lock, and Horovod built against both."""
    venv = VENVS / "jobs"
    _create(venv, python, steps)
    with steps.step(f"jobs: install PyTorch ({torch_backend})"):
        _install_torch(venv, torch_backend, steps)
    with steps.step("jobs: install Spark, XGBoost and MLflow"):
        excluded = venv / "excluded.txt"
        excluded.write_text("horovod\n")
        locks = [f"--requirement={JOBS_LOCK}", f"--requirement={TESTS_LOCK}"]
        _install(venv, [f"--excludes={excluded}", *locks], steps)
    wheel = horovod.wheel(_pinned("horovod"), venv / "bin/python", TOOLS, WHEELS, steps)
    with steps.step("jobs: install Horovod and try it"):
        _install(venv, [str(wheel)], steps)
        steps.run([f"{venv}/bin/python", "-c", "import horovod.torch as hvd; hvd.init()"])


def _create(venv: Path, python: str, steps: Steps) -> None:
    with steps.step(f"{venv.name}: create the environment"):
        steps.run([f"{TOOLS}/bin/uv", "venv", f"--python={python}", str(venv)])


def _install(venv: Path, what: list[str], steps: Steps, *options: str) -> None:
    """Install exactly `what`, whose locks are complete, hence without dependencies."""
    uv = [f"{TOOLS}/bin/uv", "pip", "install", f"--python={venv}/bin/python"]
    steps.run([*uv, *(options or ["--no-deps"]), *what])


def _install_torch(venv: Path, backend: str, steps: Steps) -> None:
    """Install the pinned PyTorch: the CPU build alone, or another with the libraries it brings."""
    torch = _pinned("torch").split()[0]
    if backend == "cpu":
        pip = [f"{TOOLS}/bin/pip", f"--python={venv}/bin/python", "install", "--no-deps"]
        try:
            # pip knows the places that a machine's owner has configured; uv does not look there.
            steps.run([*pip, f"{torch}+cpu"])
        except StepFailedError:
            _install(venv, ["--torch-backend=cpu", torch], steps)
    elif backend == "cuda":
        _install(venv, [torch], steps, f"--constraints={JOBS_LOCK}")
    else:
        _install(venv, [torch], steps, f"--constraints={JOBS_LOCK}", f"--torch-backend={backend}")


def _pinned(package: str) -> str:
    """Answer with the jobs' lock's `package==version` and the hashes that follow it."""
    lines = re.search(
        rf"^{package}==\S+(?: \\\n +--hash=\S+)*", JOBS_LOCK.read_text(), re.MULTILINE
    )
    if lines is None:
        raise StepFailedError(f"{JOBS_LOCK} has no pin for {package}: run `make lock`")
    return lines[0]
