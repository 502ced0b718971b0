"""Finding and ending every process of a submission, whatever became of the one that started it.

spark-submit starts a JVM, that a Python driver, that Python workers in process groups of their own.
Killing one of them leaves the others, so a submission is started in a session of its own and with a
marker in its environment, which all of them inherit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection

import psutil

from trainyard import tickets

MARKER = tickets.RUN_DIR
"""Environment variable that every process of a submission carries."""

GRACE_SECONDS = 1.0
"""Between asking a process to end and ending it; Airflow kills a task 5 s after on_kill began."""


def submission_processes(marker: str) -> set[psutil.Process]:
    """The live processes of a submission: those with its marker, their sessions and descendants."""
    marked = {p for p in psutil.process_iter() if p.pid != os.getpid() and _marker(p) == marker}
    sessions = {_session(process) for process in marked} - {os.getsid(0), None}
    found = marked | {p for p in psutil.process_iter() if _session(p) in sessions}
    for process in marked:
        with contextlib.suppress(psutil.Error):
            found.update(process.children(recursive=True))
    return {process for process in found if _is_running(process)}


def end_submission(marker: str, *, patience: float = 10.0) -> int:
    """End every process of a submission and wait until none is left.

    Returns:
        How many processes there were.

    Raises:
        TimeoutError: a process is left after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    found = submission_processes(marker)
    _signal(found, signal.SIGTERM)
    _wait(found, GRACE_SECONDS)
    # One whose parent ended meanwhile is no descendant any more, so that it must be remembered.
    while alive := {p for p in found if _is_running(p)} | submission_processes(marker):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(p.pid for p in alive)} do not end")
        _signal(alive, signal.SIGKILL)
        _wait(alive, 0.2)
        found |= alive
    return len(found)


def _signal(processes: Collection[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _wait(processes: Collection[psutil.Process], seconds: float) -> None:
    """Wait until processes end. Not psutil's way: it takes a child's exit code from its Popen."""
    deadline = time.monotonic() + seconds
    while any(map(_is_running, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)


def _marker(process: psutil.Process) -> str | None:
    try:
        environment: dict[str, str] = process.environ()
    except (psutil.Error, OSError):
        return None  # it ended, or is another user's
    return environment.get(MARKER)


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
