"""The file .env that scripts/compose.py makes."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from tests.plugins.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import compose


@pytest.fixture
def dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it lies; no volume is there."""
    monkeypatch.setattr(compose, "DOTENV", tmp_path / ".env")
    monkeypatch.setattr(compose, "docker", lambda *_: "")
    return tmp_path / ".env"


def test_secrets_are_added_once_and_settings_kept(dotenv: Path) -> None:
    dotenv.write_text("# mine\nAIRFLOW_PORT=8090\nSTUDIES_DB_PASSWORD=")  # no newline at the end
    dotenv.chmod(0o644)
    compose.complete_dotenv()
    first = dotenv.read_text()
    known = compose.read_dotenv()
    assert first.startswith("# mine\nAIRFLOW_PORT=8090\n")
    assert known["AIRFLOW_PORT"] == "8090"
    assert known["COMPOSE_PROJECT_NAME"] == "trainyard"
    assert len(known["STUDIES_DB_PASSWORD"]) >= 32, "an empty one is none"
    assert stat.S_IMODE(dotenv.stat().st_mode) == 0o600
    compose.complete_dotenv()
    assert dotenv.read_text() == first
    assert [path.name for path in dotenv.parent.iterdir()] == [".env"]


@pytest.mark.parametrize(
    ("volume", "lost"),
    [("postgres", "MLFLOW_DB_PASSWORD"), ("studies", "STUDIES_DB_PASSWORD")],
)
def test_passwords_that_data_know_are_not_made_anew(
    dotenv: Path, monkeypatch: pytest.MonkeyPatch, volume: str, lost: str
) -> None:
    compose.complete_dotenv()
    lines = dotenv.read_text().splitlines(keepends=True)
    before = "".join(line for line in lines if not line.startswith(lost))
    dotenv.write_text(before)
    monkeypatch.setattr(compose, "docker", lambda *_: f"trainyard_{volume}\n")
    with pytest.raises(compose.ComposeError, match=f"lacks {lost}, "):
        compose.complete_dotenv()
    assert dotenv.read_text() == before
