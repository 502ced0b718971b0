"""Processes by their identity, read from /proc: a pid alone may be another program's by now."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process of this machine since its last start.

    Attributes:
        pid: its number.
        started: clock ticks after boot at which it started.
        session: the process session it belongs to.
    """

    pid: int
    started: int
    session: int

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        found = find(self.pid)
        return found is not None and found.started == self.started

    def signal(self, number: int) -> None:
        """Send it a signal; nothing happens where it is gone."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


def boot_id() -> str:
    """Identity of this machine's kernel since it started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def find(pid: int) -> Process | None:
    """The process that has a number now; a dead one that nobody has waited for counts as gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, _, _, session, *rest = stat.rpartition(")")[2].split()
    if state in "ZX":
        return None
    return Process(pid=pid, started=int(rest[15]), session=int(session))


def running() -> list[Process]:
    """Every process of this machine."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [process for pid in pids if (process := find(pid))]


def has_variable(process: Process, name: str, value: str) -> bool:
    """Whether a process was started with a variable; False for one that is not this user's."""
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{name}={value}".encode() in environment.split(b"\0")


def command(process: Process) -> list[str]:
    """A process's command line, word by word; empty for one that is gone."""
    try:
        line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    except OSError:
        return []
    return line.rstrip(b"\0").decode(errors="replace").split("\0")


def end(find_them: Callable[[], Iterable[Process]], *, grace: float) -> list[Process]:
    """End processes, with SIGKILL after `grace` seconds, and return those that are left.

    `find_them` is asked again and again, since a process that is ending may start others.
    """
    asked: set[Process] = set()
    deadline = time.monotonic() + grace
    while left := list(find_them()):
        now = time.monotonic()
        if now > deadline + 5:
            break
        for process in left:
            if now > deadline:
                process.signal(signal.SIGKILL)
            elif process not in asked:
                process.signal(signal.SIGTERM)
                asked.add(process)
        time.sleep(0.1)
    return left
