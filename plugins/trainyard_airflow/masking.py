"""What counts as a secret in a command, an address or a log line, and how it is hidden.

The provider hides only keys that contain "secret" or "password"; access keys, tokens and the
passwords in addresses are as secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "******"

_SECRET_NAME = re.compile(
    r"secret(?!-scope)|passw|pwd|token(?!iz)|credential|signature"
    r"|(?:api|access|account|private|encryption)[-_.]?key",
    re.IGNORECASE,
)
_WORKING_DIRECTORIES = ("PWD", "OLDPWD")
"""Variables of every shell that hold a path, whatever their names look like."""

_USER_INFO = re.compile(r"(?<=://)([^\s:/@]*):([^\s/@]+)@")
_PAIR = re.compile(r"([\w.\-]+)=(\"[^\"]*\"|'[^']*'|[^\s&;,'\"]+)")


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret."""
    return name not in _WORKING_DIRECTORIES and _SECRET_NAME.search(name) is not None


def mask(text: str) -> str:
    """`text` without the passwords in addresses and without the values of `name=value` secrets."""
    text = _USER_INFO.sub(rf"\1:{HIDDEN}@", text)
    return _PAIR.sub(lambda m: f"{m[1]}={HIDDEN}" if is_secret(m[1]) else m[0], text)


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


def secrets_in(text: str) -> list[str]:
    """The secret values that `mask` hides."""
    pairs = [match[2].strip("'\"") for match in _PAIR.finditer(text) if is_secret(match[1])]
    return [match[2] for match in _USER_INFO.finditer(text)] + pairs
