"""What the doctor found: each names a setting and its value, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from trainyard.errors import JobError
from trainyard_airflow import masking

OK, WARNING, ERROR = "ok", "warning", "error"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: ok, warning or error; an error will fail the run.
        subject: what was looked at, such as a task or "store".
        text: the setting, its value and what is wrong with it.
        fix: what to do; empty where nothing is wrong.
        permanent: of an error, whether another look would find it again until someone fixes it.
    """

    level: str
    subject: str
    text: str
    fix: str = ""
    permanent: bool = False

    def __str__(self) -> str:
        line = f"{self.level:<8}{self.subject}: {self.text}"
        return masking.mask(f"{line} fix: {self.fix}" if self.fix else line)


def ok(subject: str, text: str) -> Finding:
    """What is as it should be."""
    return Finding(level=OK, subject=subject, text=text)


def warning(subject: str, text: str, fix: str) -> Finding:
    """What may go wrong, or is likely not meant."""
    return Finding(level=WARNING, subject=subject, text=text, fix=fix)


def error(subject: str, problem: JobError) -> Finding:
    """What will fail a run."""
    return Finding(
        level=ERROR,
        subject=subject,
        text=problem.cause,
        fix=problem.fix,
        permanent=problem.permanent,
    )


def guarded(subject: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a look, whose own `JobError` is one of them."""
    try:
        yield from look()
    except JobError as problem:
        yield error(subject, problem)


def failed(findings: Iterable[Finding]) -> list[Finding]:
    """Those that will fail a run."""
    return [finding for finding in findings if finding.level == ERROR]
