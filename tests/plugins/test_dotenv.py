"""The file .env that `make compose-up` makes, and what is read from it."""

from __future__ import annotations

import base64
import re
import stat
import sys
from pathlib import Path

import pytest
from tests.plugins.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from services import dotenv
from services.dotenv import ComposeError


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it lies."""
    monkeypatch.setattr(dotenv, "DOTENV", tmp_path / ".env")
    return tmp_path / ".env"


def test_secrets_are_added_once_and_settings_kept(path: Path) -> None:
    path.write_text("# mine\nAIRFLOW_PORT=8090\nSTUDIES_DB_PASSWORD=")  # no newline at the end
    path.chmod(0o644)
    dotenv.complete([])
    first = path.read_text()
    known = dotenv.read()
    assert first.startswith("# mine\nAIRFLOW_PORT=8090\n")
    assert known["AIRFLOW_PORT"] == "8090"
    assert known["COMPOSE_PROJECT_NAME"] == "trainyard"
    assert len(known["STUDIES_DB_PASSWORD"]) >= 32, "an empty one is none"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    dotenv.complete([])
    assert path.read_text() == first
    assert [found.name for found in path.parent.iterdir()] == [".env"]


@pytest.mark.parametrize("project", ["trainyard", "second"])
@pytest.mark.parametrize(
    ("volume", "lost"),
    [("postgres", "MLFLOW_DB_PASSWORD"), ("studies", "STUDIES_DB_PASSWORD")],
)
def test_passwords_that_data_know_are_not_made_anew(
    path: Path, project: str, volume: str, lost: str
) -> None:
    path.write_text(f"COMPOSE_PROJECT_NAME={project}\n")
    dotenv.complete([f"other_{volume}"])
    lines = path.read_text().splitlines(keepends=True)
    before = "".join(line for line in lines if not line.startswith(lost))
    path.write_text(before)
    with pytest.raises(
        ComposeError, match=f"(?s)lacks {lost}, .* in {project}_{volume} were .*compose-down"
    ):
        dotenv.complete([f"{project}_{volume}"])
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "export AIRFLOW_PORT=8090",
            "line 2: 'export AIRFLOW_PORT' is no name .* without `export`",
        ),
        ("AIRFLOW_PORT = 8090", "line 2: 'AIRFLOW_PORT ' is no name"),
        ("AIRFLOW_PORT", "line 2 is no setting"),
        ("AIRFLOW_ADMIN_PASSWORD='fish'", 'AIRFLOW_ADMIN_PASSWORD has the character "\'"'),
        ('AIRFLOW_ADMIN_PASSWORD="fish"', "AIRFLOW_ADMIN_PASSWORD has the character '\"'"),
        ("AIRFLOW_ADMIN_PASSWORD=fi sh", "AIRFLOW_ADMIN_PASSWORD has the character ' '"),
        ("AIRFLOW_ADMIN_PASSWORD=fish # mine", "AIRFLOW_ADMIN_PASSWORD has the character ' '"),
        ("AIRFLOW_ADMIN_PASSWORD=fi#sh", "AIRFLOW_ADMIN_PASSWORD has the character '#'"),
        ("AIRFLOW_ADMIN_PASSWORD=fi$sh", "AIRFLOW_ADMIN_PASSWORD has the character '\\$'"),
        ("AIRFLOW_ADMIN_PASSWORD=fi\\sh", r"AIRFLOW_ADMIN_PASSWORD has the character '\\\\'"),
        ("AIRFLOW_ADMIN_PASSWORD=físh", "AIRFLOW_ADMIN_PASSWORD has the character 'í'"),
        ("AIRFLOW_DB_PASSWORD=fi@sh", "AIRFLOW_DB_PASSWORD must be letters, digits"),
        ("STUDIES_DB_PASSWORD=fi%40sh", "STUDIES_DB_PASSWORD must be letters, digits"),
        ("MLFLOW_DB_PASSWORD=fi/sh", "MLFLOW_DB_PASSWORD must be letters, digits"),
        ("AIRFLOW_PORT=65536", "AIRFLOW_PORT must be a port from 1 to 65535"),
        ("SPARK_MASTER_PORT=eight", "SPARK_MASTER_PORT must be a port"),
        ("SPARK_JOBS=two", "SPARK_JOBS must be a whole number from 1 on"),
        ("SPARK_WORKER_CORES=0", "SPARK_WORKER_CORES must be a whole number from 1 on"),
        ("SPARK_WORKER_MEMORY=4", "SPARK_WORKER_MEMORY must be a number and g or m"),
        ("SPARK_WORKER_LIMIT=lots", "SPARK_WORKER_LIMIT must be a number and g or m"),
        ("COMPOSE_PROJECT_NAME=Train.Yard", "COMPOSE_PROJECT_NAME must be small letters"),
    ],
)
def test_what_compose_could_read_otherwise_is_refused(path: Path, line: str, problem: str) -> None:
    path.write_text(f"# first\n{line}\n", encoding="utf-8")
    with pytest.raises(ComposeError, match=problem) as refused:
        dotenv.read()
    assert not re.search("f[ií].{,3}sh", str(refused.value)), "a secret is not shown"


def test_what_every_version_reads_alike_is_read(path: Path) -> None:
    path.write_bytes(
        b"\r\n  # caf\xc3\xa9\r\n MLFLOW_PORT=1 \r\nA_DB_PASSWORD=a-b.c_d~E9\r\nURL=a=b/c:d@e"
    )
    assert dotenv.read() == {"MLFLOW_PORT": "1", "A_DB_PASSWORD": "a-b.c_d~E9", "URL": "a=b/c:d@e"}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xef\xbb\xbfAIRFLOW_PORT=8090\n", "byte order mark"),
        ("AIRFLOW_PORT=8090\n".encode("utf-16"), "not text in UTF-8"),
        (b"# caf\xe9\n", "not text in UTF-8"),
    ],
)
def test_another_encoding_is_refused(path: Path, data: bytes, problem: str) -> None:
    path.write_bytes(data)
    with pytest.raises(ComposeError, match=problem):
        dotenv.complete([])
    assert path.read_bytes() == data


@pytest.mark.parametrize("name", ["AIRFLOW_FERNET_KEY", "SPARK_REST_KEY"])
@pytest.mark.parametrize("value", ["short", "====", "a" * 31 + "!" + "a" * 12])
def test_what_is_no_key_is_refused(path: Path, name: str, value: str) -> None:
    path.write_text(f"{name}={value}\n")
    with pytest.raises(ComposeError, match=f"{name} .* is not the base64"):
        dotenv.complete([])


def test_a_token_of_another_key_is_refused(path: Path) -> None:
    dotenv.complete([])
    known = dotenv.read()
    other = base64.urlsafe_b64encode(bytes(32)).decode()
    path.write_text(path.read_text() + f"SPARK_REST_KEY={other}\n")
    with pytest.raises(ComposeError, match=r"SPARK_REST_TOKEN of \.env is not signed"):
        dotenv.complete([])
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("SPARK_REST_TOKEN")))
    dotenv.complete([])
    assert dotenv.read()["SPARK_REST_KEY"] == other
    assert dotenv.read()["SPARK_REST_TOKEN"] != known["SPARK_REST_TOKEN"]


def test_it_goes_before_the_shell(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("AIRFLOW_PORT=8090\nMLFLOW_PORT=\n")
    shell = {
        "AIRFLOW_PORT": "1",
        "MLFLOW_PORT": "2",
        "SPARK_JOBS": "3",
        "COMPOSE_FILE": "/elsewhere.yaml",
        "COMPOSE_PROJECT_NAME": "elsewhere",
    }
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    found = dotenv.environment()
    assert {name: found.get(name) for name in shell} == {
        "AIRFLOW_PORT": "8090",
        "MLFLOW_PORT": "2",
        "SPARK_JOBS": "3",
        "COMPOSE_FILE": None,
        "COMPOSE_PROJECT_NAME": "trainyard",
    }
    path.write_text(
        "COMPOSE_FILE=docker-compose.yaml:docker/cuda.yaml\nCOMPOSE_PROJECT_NAME=second\n"
    )
    found = dotenv.environment()
    assert found["COMPOSE_FILE"] == "docker-compose.yaml:docker/cuda.yaml"
    assert found["COMPOSE_PROJECT_NAME"] == "second"
