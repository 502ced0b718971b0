"""The file .env of docker-compose.yaml: its settings, and a secret for each thing that needs one.

A line is NAME=VALUE. Versions of Compose read quotes, spaces, `$`, `#`, backslashes and `export`
each in their own way, so none of these may be there: what is read here, the containers are given.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

DOTENV = Path(__file__).resolve().parents[2] / ".env"
PROJECT = "trainyard"
"""The project's name to Compose, unless .env has another."""

KEPT = {
    "postgres": ("POSTGRES_PASSWORD", "AIRFLOW_DB_PASSWORD", "MLFLOW_DB_PASSWORD"),
    "studies": ("STUDIES_DB_PASSWORD",),
}
"""The volumes whose data know passwords of .env, with their names."""

KEY_BYTES = 32

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ODD = re.compile(r"""[^!-~]|["'`$#\\]""")
_RULES = {
    # These stand in URLs.
    r"\w+_DB_PASSWORD": (r"[\w.~-]+", "letters, digits, '-', '.', '_' and '~' alone"),
    "COMPOSE_PROJECT_NAME": (r"[a-z0-9][a-z0-9_-]*", "small letters, digits, '-' and '_' alone"),
    "(AIRFLOW|MLFLOW|SPARK_MASTER|SPARK_HISTORY)_PORT": (
        r"[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]",
        "a port from 1 to 65535",
    ),
    "SPARK_JOBS|SPARK_WORKER_CORES": (r"[1-9]\d{0,5}", "a whole number from 1 on"),
    "SPARK_WORKER_(LIMIT|MEMORY)": (r"[1-9]\d{0,8}[gm]", "a number and g or m, such as 4g"),
}
"""What settings that are not empty must be, and that in words."""


class ComposeError(Exception):
    """What is wrong, and what to do; the message of the program."""


def environment() -> dict[str, str]:
    """The variables for Docker and Compose: .env goes before the shell.

    A shell's COMPOSE_FILE, COMPOSE_PROJECT_NAME and so on were meant for another project.
    """
    shell = {name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")}
    given = {name: value for name, value in read().items() if value}
    return {**shell, "COMPOSE_PROJECT_NAME": PROJECT, **given}


def read() -> dict[str, str]:
    """The settings of .env.

    Raises:
        ComposeError: Compose could read a line otherwise.
    """
    if not DOTENV.exists():
        return {}
    try:
        lines = DOTENV.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ComposeError(f".env is not text in UTF-8: {error}. Save it as UTF-8.") from error
    if lines[0].startswith("\ufeff"):
        raise ComposeError(".env begins with a byte order mark: save it as UTF-8 without one.")
    kept = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    return dict(_setting(n, line) for n, line in kept if line and not line.startswith("#"))


def complete(volumes: Collection[str]) -> None:
    """Add to .env what it lacks; only this user reads it.

    Args:
        volumes: the volumes that Docker has.

    Raises:
        ComposeError: data of an earlier .env are there, whose passwords nobody knows; or a key
            cannot be one.
    """
    known = read()
    project = known.get("COMPOSE_PROJECT_NAME") or PROJECT
    there = {v: names for v, names in KEPT.items() if f"{project}_{v}" in volumes}
    lost = {v: [n for n in names if not known.get(n)] for v, names in there.items()}
    if missing := [name for names in lost.values() for name in names]:
        made = ", ".join(f"{project}_{volume}" for volume, names in lost.items() if names)
        raise ComposeError(
            f".env lacks {', '.join(missing)}, and data in {made} were made with earlier ones.\n"
            "Put them back, or remove all data that are there: make compose-down ARGS=--volumes"
        )
    new = {name: value for name, value in secrets_for(known) if not known.get(name)}
    if new:
        text = DOTENV.read_text(encoding="utf-8") if DOTENV.exists() else ""
        if text and not text.endswith("\n"):
            text += "\n"
        text += "".join(f"{name}={value}\n" for name, value in new.items())
        written = DOTENV.with_name(f"{DOTENV.name}.new")
        written.unlink(missing_ok=True)
        written.touch(mode=0o600)
        written.write_text(text, encoding="utf-8")
        written.replace(DOTENV)
    DOTENV.chmod(0o600)


def secrets_for(known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """All that must be in .env, made anew; the token is signed with the key that is known.

    Raises:
        ComposeError: a key is none, or the known token was signed with another one.
    """
    yield "COMPOSE_PROJECT_NAME", PROJECT
    yield "AIRFLOW_ADMIN_PASSWORD", secrets.token_urlsafe(12)
    fernet = known.get("AIRFLOW_FERNET_KEY") or _new_key()
    for part in fernet.split(","):  # a new one before old ones, where keys are rotated
        _decoded("AIRFLOW_FERNET_KEY", part)
    yield "AIRFLOW_FERNET_KEY", fernet
    yield "AIRFLOW_SECRET_KEY", secrets.token_urlsafe(32)
    yield "AIRFLOW_JWT_SECRET", secrets.token_urlsafe(48)
    for database in ("POSTGRES", "AIRFLOW_DB", "MLFLOW_DB", "STUDIES_DB"):
        yield f"{database}_PASSWORD", secrets.token_hex(24)
    text = known.get("SPARK_REST_KEY") or _new_key()
    key = _decoded("SPARK_REST_KEY", text)
    yield "SPARK_REST_KEY", text
    token = known.get("SPARK_REST_TOKEN") or _token(key)
    signed, _, signature = token.rpartition(".")
    if not hmac.compare_digest(signature, _signature(key, signed)):
        raise ComposeError(
            "SPARK_REST_TOKEN of .env is not signed with its SPARK_REST_KEY: Spark's master would"
            " refuse it.\nRemove the token's line: `make compose-up` makes one that is."
        )
    yield "SPARK_REST_TOKEN", token


def _setting(number: int, line: str) -> tuple[str, str]:
    """The name and the value of a line, which are the same to all that read them."""
    place = f".env, line {number}"
    name, is_setting, value = line.partition("=")
    if not is_setting:
        raise ComposeError(f"{place} is no setting: write NAME=VALUE, or begin it with `#`.")
    if not _NAME.fullmatch(name):
        raise ComposeError(
            f"{place}: {name!r} is no name of a setting: write NAME=VALUE, without `export` and"
            " without spaces at the `=`."
        )
    if odd := _ODD.search(value):
        raise ComposeError(
            f"{place}: the value of {name} has the character {odd[0]!r}, which versions of Compose"
            " read each in their own way. Write it without quotes, spaces, `$`, `#`, a backslash or"
            " letters outside ASCII."
        )
    for names, (pattern, words) in _RULES.items():
        if value and re.fullmatch(names, name) and not re.fullmatch(pattern, value):
            raise ComposeError(f"{place}: {name} must be {words}. Choose another value.")
    return name, value


def _decoded(name: str, value: str) -> bytes:
    """The bytes of a key."""
    try:
        key = base64.b64decode(value, altchars=b"-_", validate=True)
    except binascii.Error:
        key = b""
    if len(key) < KEY_BYTES:
        raise ComposeError(
            f"{name} of .env is not the base64 of {KEY_BYTES} bytes with '-' and '_' (RFC 4648,"
            " section 5).\nPut the earlier one back, or remove the line, and `make compose-up`"
            " makes one."
        )
    return key


def _new_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _token(key: bytes) -> str:
    """A JSON Web Token that Spark's JWSFilter takes, signed with the key."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": "airflow"}]
    signed = ".".join(_base64url(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{_signature(key, signed)}"


def _signature(key: bytes, signed: str) -> str:
    return _base64url(hmac.new(key, signed.encode(), hashlib.sha256).digest())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
