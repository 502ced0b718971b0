"""scripts/local.py: its environment, its secrets, and how it starts and ends in bad weather."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.e2e.own_airflow import ROOT, clean_environment, free_port, local

from services import processes
from services.installation import MARK, Installation


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Some program that is none of the services'."""
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        yield process
        process.kill()


def write_record(home: Path, *, boot: str, services: dict[str, dict[str, int]]) -> None:
    record = home / "run" / "services.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"boot": boot, "port": 1, "services": services}))


def identity(pid: int) -> dict[str, int]:
    process = processes.find(pid)
    assert process is not None
    return asdict(process)


def test_env_is_what_a_shell_needs_and_holds_no_secret(home: Path) -> None:
    environment = clean_environment(home, 8765)
    Installation(home=home, port=8765).prepare()

    printed = local("env", environment).stdout

    shell = ["sh", "-c", f"{printed}\ncommand -v python; command -v spark-submit; env"]
    seen = subprocess.run(shell, env=environment, capture_output=True, text=True, check=True).stdout
    python, submit, *variables = seen.splitlines()
    assert python == f"{ROOT}/.venv/airflow/bin/python"
    assert submit == f"{ROOT}/.venv/jobs/bin/spark-submit"
    assert f"AIRFLOW__TRAINYARD__STORE={home}/store" in variables
    assert f"MLFLOW_TRACKING_URI=sqlite:///{home}/store/mlflow.db" in variables
    secrets = (
        Path(home / "airflow" / "airflow.cfg").read_text()
        + Path(home / "airflow" / "passwords.json").read_text()
    )
    assert not [word for word in secrets.split() if len(word) > 12 and word.strip('"}') in seen]


def test_env_keeps_what_the_user_has_set(home: Path) -> None:
    chosen = {
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "spark://it\'s:7077"}',
        "AIRFLOW__TRAINYARD__STORE": "s3://bucket/trainyard",
    }
    environment = clean_environment(home, 8765, **chosen)

    printed = local("env", environment).stdout
    words = [word for line in printed.splitlines() for word in shlex.split(line)[1:]]
    result = {**environment, **dict(word.split("=", 1) for word in words)}

    assert chosen.items() <= result.items()
    assert result["MLFLOW_TRACKING_URI"] == f"sqlite:///{home}/mlflow.db"
    # A driver that binds to 127.0.0.1 cannot be reached from a cluster.
    assert "SPARK_LOCAL_IP" not in result


def test_secrets_are_made_once_and_only_this_user_reads_them(home: Path) -> None:
    place = Installation(home=home, port=1)
    files = [place.airflow_home / "airflow.cfg", place.passwords]
    mask = os.umask(0)
    try:
        place.prepare()
        first = [file.read_text() for file in files]
        place.prepare()
    finally:
        os.umask(mask)

    assert [file.read_text() for file in files] == first
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    assert stat.S_IMODE(place.airflow_home.stat().st_mode) == 0o700
    assert len(place.password()) >= 16
    assert place.password() not in first[0]


def test_a_pid_of_another_program_is_left_alone(
    home: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    reused = identity(sleeper.pid) | {"started": 1}
    write_record(home, boot=processes.boot_id(), services={"api-server": reused})

    environment = clean_environment(home, free_port())
    assert local("status", environment).returncode == 3
    assert local("down", environment).returncode == 0

    assert sleeper.poll() is None
    assert not (home / "run" / "services.json").exists()


def test_a_record_from_before_a_reboot_means_nothing(
    home: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    write_record(home, boot="another", services={"api-server": identity(sleeper.pid)})

    assert local("down", clean_environment(home, free_port())).returncode == 0

    assert sleeper.poll() is None


def test_down_ends_what_ignores_sigterm_and_what_left_its_session(home: Path) -> None:
    stubborn = (
        "import signal as s, time; s.signal(15, s.SIG_IGN); print(flush=True); time.sleep(99)"
    )
    service = subprocess.Popen(
        [sys.executable, "-c", stubborn], start_new_session=True, stdout=subprocess.PIPE
    )
    driver = subprocess.Popen(
        ["sleep", "300"], start_new_session=True, env={**os.environ, MARK: str(home)}
    )
    other = subprocess.Popen(
        ["sleep", "300"], start_new_session=True, env={**os.environ, MARK: f"{home}2"}
    )
    with service, driver, other:
        assert service.stdout is not None
        service.stdout.readline()
        write_record(home, boot=processes.boot_id(), services={"api-server": identity(service.pid)})
        try:
            assert local("down", clean_environment(home, free_port())).returncode == 0
            assert service.wait(1) == -signal.SIGKILL
            assert driver.wait(1) == -signal.SIGTERM
            assert other.poll() is None
        finally:
            for process in (service, driver, other):
                process.kill()


def test_a_taken_port_is_named_before_anything_starts(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = local("up", clean_environment(home, port))

    assert refused.returncode == 1
    assert f"PORT is {port}" in refused.stderr
    assert f"PORT={port + 1}" in refused.stderr
    assert not (home / "airflow").exists()


@pytest.mark.parametrize("port", ["abc", "0", "65536", "-1"])
def test_a_port_that_is_none_is_refused(home: Path, port: str) -> None:
    environment = {**clean_environment(home, 1), "PORT": port}

    refused = local("up", environment)

    assert (refused.returncode, "PORT is" in refused.stderr) == (1, True)


def test_a_service_that_ends_at_once_shows_why_and_leaves_nothing(home: Path) -> None:
    broken = {"AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "soon"}

    failed = local("up", clean_environment(home, free_port(), **broken))

    assert failed.returncode == 1
    assert "scheduler ended with code" in failed.stderr
    assert "'soon'" in failed.stderr or '"soon"' in failed.stderr
    assert not [p for p in processes.running() if processes.has_variable(p, MARK, str(home))]


def test_up_twice_starts_nothing_new_and_logs_the_password_nowhere(
    installation: Installation,
) -> None:
    record = installation.home / "run" / "services.json"
    before = record.read_text()

    again = local("up", clean_environment(installation.home, free_port()))

    assert again.returncode == 0
    assert installation.url in again.stdout
    assert record.read_text() == before
    written = [again.stdout, *(log.read_text() for log in installation.logs.iterdir())]
    assert not [text for text in written if installation.password() in text]
    assert local("status", clean_environment(installation.home, 1)).returncode == 0


def test_airflow_wrapper_runs_in_the_installation(installation: Installation) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "airflow", "config", "get-value", "core", "dags_folder"],
        env=clean_environment(installation.home, installation.port),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip().endswith(f"{ROOT}/dags")
