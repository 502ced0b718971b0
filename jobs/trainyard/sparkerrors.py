"""Turns an error that Spark wraps around a known failure back into that failure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trainyard.errors import JobError, TransientError

_JOB_ERROR = re.compile(
    r"(?P<kind>(?:Job|Setting|Transient)Error): cause: (?P<cause>.*?) fix: (?P<fix>[^\n]*)",
    re.DOTALL,
)
_CSV_HEADER = re.compile(
    r"Header: (?P<header>[^\n]*)\n\s*Schema: (?P<schema>[^\n]*).*?CSV file: (?P<file>\S+)",
    re.DOTALL,
)

_VALUE = re.compile(
    r"\[(?:CAST_INVALID_INPUT|CAST_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|ARITHMETIC_OVERFLOW|"
    r"NUMERIC_VALUE_OUT_OF_RANGE|CANNOT_PARSE_TIMESTAMP|DATETIME_FIELD_OUT_OF_BOUNDS|"
    r"SCALAR_SUBQUERY_TOO_MANY_ROWS|INVALID_ARRAY_INDEX)[.\w]*\] (?P<told>[^\n]*)"
)
"""What ANSI SQL raises for a value that it cannot compute."""

_MISSING = re.compile(r"ModuleNotFoundError: No module named '(?P<module>[^'\n]+)'")

_DAMAGED = re.compile(r"\[FAILED_READ_FILE[.\w]*\] [^\n]*? file (?P<file>[^\n]+?)\.(?: |\n|$)")


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise, in place of Spark's error, the `JobError` that a task raised or that it amounts to."""
    try:
        yield
    except JobError:
        raise
    except Exception as error:
        known = known_error(_text(error))
        if known is None:
            raise
        raise known from error


def _text(error: Exception) -> str:
    """All that an error says, Java's causes included."""
    texts = [str(error)]
    cause = getattr(error, "java_exception", None)
    while cause is not None:
        texts.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(texts)


def known_error(text: str) -> JobError | None:
    """The `JobError` that a text of Spark's tells of, if any."""
    if found := _JOB_ERROR.search(text):
        kind = TransientError if found["kind"] == TransientError.__name__ else JobError
        return kind(found["cause"], found["fix"].strip())
    if found := _CSV_HEADER.search(text):
        return JobError(
            f"the CSV file {found['file']} has the columns {found['header']}, but another file "
            f"has {found['schema']}.",
            "Give all files one header, with the columns in one order.",
        )
    if found := _VALUE.search(text):
        told = re.split(r"(?<=\.) (?:Use|If)|SQLSTATE", found["told"])[0].strip()
        return JobError(
            f"Spark cannot compute a value of the rows: {told}",
            "Correct the value, or use try_cast or try_divide in the query: they give null.",
        )
    if found := _DAMAGED.search(text):
        return JobError(
            f"Spark cannot read the file {found['file']}: it is damaged, or of another format than"
            " its name or setting 'format' says.",
            "Write the file again, or take it out of the source.",
        )
    if found := _MISSING.search(text):
        return JobError(
            f"the executors' Python has no module {found['module']!r}.",
            "Before the program starts, set PYSPARK_PYTHON to a Python with the driver's packages;"
            f" on the driver's machine that is {sys.executable}.",
        )
    return None
