"""Errors that a user can act on: each names its cause and its fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import ClassVar

_LONGEST = 500
"""Characters of a value that a message shows."""

PASSWORD = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")
"""User and password in an address."""


class JobError(Exception):
    """A failure whose cause and fix are known.

    Args:
        cause: what is wrong, naming the setting or the file and its value.
        fix: what the reader should do about it.

    Attributes:
        permanent: whether another attempt would fail again until someone applies the fix.
    """

    permanent: ClassVar[bool] = True

    def __init__(self, cause: str, fix: str) -> None:
        super().__init__(cause, fix)
        self.cause = cause
        self.fix = fix

    def __str__(self) -> str:
        return f"cause: {self.cause} fix: {self.fix}"


class TransientError(JobError):
    """A failure that may be over at the next attempt: a lost machine, a full store."""

    permanent = False


class SettingError(JobError, ValueError):
    """A setting has a value that the contract does not allow."""

    def __init__(self, name: str, value: object, problem: str, fix: str) -> None:
        super().__init__(f"setting {name!r} is {shown(value)}: {problem}.", fix)
        self.name = name
        self.value = value
        self.problem = problem

    def __reduce__(self) -> tuple[type[SettingError], tuple[str, object, str, str]]:
        return type(self), (self.name, self.value, self.problem, self.fix)


class UnmetError(SettingError):
    """A setting that cannot be met now, since others hold what it needs, but may be later."""

    permanent = False


def shown(value: object) -> str:
    """A value as a message shows it: without the password of an address, and never too long."""
    try:
        text = PASSWORD.sub("(hidden)", repr(value))
    except (ValueError, RecursionError):  # thousands of digits, lists in lists
        return f"of type {type(value).__name__}, too large to show"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def shown_key(key: object) -> str:
    """A row's key as a message shows it: a URL without its query, which may hold a signature."""
    text = str(key)
    return text.partition("?")[0] if "://" in text else text


def nearest(name: str, names: Iterable[str]) -> str:
    """Say which of `names` is meant by a misspelt `name`, or list them all."""
    known = sorted(names)
    folded = {known_name.lower(): known_name for known_name in known}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"Did you mean {folded[close[0]]!r}?" if close else f"Use one of: {', '.join(known)}."
