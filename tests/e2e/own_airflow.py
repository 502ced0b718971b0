"""An installation for the tests alone: another home, store and port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCAL = [sys.executable, str(ROOT / "scripts" / "local.py")]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment(home: Path, port: int, **more: str) -> dict[str, str]:
    """The environment of a user who has set nothing but the home and the port."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "MLFLOW", "SPARK", "PYSPARK", "TRAINYARD", "PYTHONPATH"))
    }
    return {**kept, "TRAINYARD_HOME": str(home), "PORT": str(port), **more}


def local(
    command: str, environment: dict[str, str], *, seconds: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run scripts/local.py."""
    return subprocess.run(
        [*LOCAL, command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@contextmanager
def services_up(environment: dict[str, str]) -> Iterator[None]:
    """Airflow's services, up while the block runs and down after it."""
    try:
        started = local("up", environment)
        assert started.returncode == 0, started.stderr
        yield
    finally:
        ended = local("down", environment)
        assert ended.returncode == 0, ended.stderr
