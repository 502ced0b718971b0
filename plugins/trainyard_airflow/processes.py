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
from collections.abc import Iterable, Sequence

import psutil

MARKER = "TRAINYARD_SUBMISSION"
"""Environment variable that every process of a submission carries."""

GRACE_SECONDS = 1.0
"""Between asking a process to end and ending it; Airflow kills a task 5 s after on_kill began."""


def submission_processes(marker: str) -> list[psutil.Process]:
    """The live processes of a submission: those with its marker, their sessions and descendants."""
    mine = os.getpid(), os.getsid(0)
    marked = [p for p in psutil.process_iter() if p.pid != mine[0] and _marker(p) == marker]
    sessions = {_session(p) for p in marked} - {mine[1], None}
    found = {p.pid: p for p in marked}
    for process in psutil.process_iter():
        if _session(process) in sessions:
            found[process.pid] = process
    for process in marked:
        with contextlib.suppress(psutil.Error):
            found.update({child.pid: child for child in process.children(recursive=True)})
    return [process for process in found.values() if _is_running(process)]


def is_marked(pid: int, marker: str) -> bool:
    """Whether a process belongs to a submission."""
    try:
        return _marker(psutil.Process(pid)) == marker
    except psutil.NoSuchProcess:
        return False


def end_submission(marker: str, *, patience: float = 10.0) -> int:
    """End every process of a submission and wait until none is left.

    Returns:
        How many processes there were.

    Raises:
        TimeoutError: a process is left after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    processes = submission_processes(marker)
    count = len(processes)
    _signal(processes, signal.SIGTERM)
    _wait(processes, GRACE_SECONDS)
    while processes := submission_processes(marker):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(p.pid for p in processes)} do not end")
        _signal(processes, signal.SIGKILL)
        _wait(processes, 0.2)
    return count


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _wait(processes: Sequence[psutil.Process], seconds: float) -> None:
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
