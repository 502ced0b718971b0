"""What counts as a secret in a command, an address or a log line, and how it is hidden.

The provider hides only keys that contain "secret" or "password"; access keys, tokens and the
passwords in addresses are as secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HIDDEN = "******"

REDACTION = (
    r"(?i)secret(?!-scope)|passw|pwd|token(?!iz)|credential|signature|connection.?string"
    r"|(?:api|access|account|private|encryption)[-_.]?key"
)
"""What the names of secrets contain: for Python, and for Java as Spark's spark.redaction.regex."""

_SECRET_NAME = re.compile(REDACTION)
_WORKING_DIRECTORIES = ("PWD", "OLDPWD")
"""Variables of every shell that hold a path, whatever their names look like."""

_USER_INFO = re.compile(r"(?<=://)([^\s:/@]*):([^\s/]+)@")
# Where a name starts is asserted, so that a long line without "=" takes linear time.
_NAME = re.compile(r"(?<![\w.\-])([\w.\-]++)=")
_VALUE = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s&;,'\"]+")


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret."""
    return name not in _WORKING_DIRECTORIES and _SECRET_NAME.search(name) is not None


def mask(text: str) -> str:
    """`text` without the passwords in addresses and without the values of `name=value` secrets."""
    parts, shown = [], 0
    for start, end in _secret_spans(text):
        parts += [text[shown:start], HIDDEN]
        shown = end
    return "".join([*parts, text[shown:]])


def secrets_in(text: str) -> list[str]:
    """The secret values that `mask` hides."""
    return [text[start:end].strip("'\"") for start, end in _secret_spans(text)]


def secrets_of(name: str, value: str) -> list[str]:
    """The secrets in a named value: all of it, where the name says so."""
    return [value] if is_secret(name) else secrets_in(value)


def split(conf: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Spark configuration that may be seen, and that which holds a secret."""
    secret = {key: str(value) for key, value in conf.items() if secrets_of(key, str(value))}
    return {key: value for key, value in conf.items() if key not in secret}, secret


def mask_command(argv: Sequence[str]) -> str:
    """A command line that can be logged; the value after a secret flag is hidden too."""
    return " ".join(_masked(argv))


def _masked(argv: Sequence[str]) -> Iterator[str]:
    hide_next = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if hide_next:
            yield HIDDEN
        elif equals and is_secret(name):
            yield f"{name}={HIDDEN}"
        else:
            yield mask(word)
        hide_next = word.startswith("-") and not equals and is_secret(word)


def _secret_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the secrets of a text are, from left to right."""
    spans = [match.span(2) for match in _USER_INFO.finditer(text)]
    for name in _NAME.finditer(text):
        if is_secret(name[1]) and (value := _VALUE.match(text, name.end())):
            spans.append(value.span())
    shown = 0
    for start, end in sorted(spans):
        if start >= shown:
            yield start, end
            shown = end
