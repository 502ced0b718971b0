"""Runs set-up's commands: a printed line and a duration each, their own output in a log file."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

TICK_S = 15
TAIL_LINES = 30
TITLE_WIDTH = 56


class StepFailedError(Exception):
    """A command of a step failed; the message says where its output is and how it ended."""


class Steps:
    """One run of set-up, whose commands share a log file.

    No command works beside the next run when this one is killed: the kernel ends it, what it has
    started ends at its next output, for which nobody is left, and the next run waits until then,
    because all of them inherit `lock` as their standard input.
    """

    def __init__(self, log: Path, lock: IO[str]) -> None:
        self.log = log
        self._lock = lock
        self._began = time.monotonic()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print `title`, and how long the body took."""
        began = time.monotonic()
        print(f"{title:<{TITLE_WIDTH}}", end="", flush=True)
        try:
            yield
        except BaseException:
            print(f"{'failed':>8}")
            raise
        print(f"{time.monotonic() - began:8.1f} s")

    def total(self) -> None:
        """Print how long the whole run took."""
        print(f"{'in all':<{TITLE_WIDTH}}{time.monotonic() - self._began:8.1f} s")

    def run(self, command: list[str], env: Mapping[str, str] | None = None) -> None:
        """Run `command` with `env` added to the environment; raise StepFailedError if it fails."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab", buffering=0) as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            process = subprocess.Popen(
                command,
                stdin=self._lock,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
            with process:
                _copy(cast(IO[bytes], process.stdout), log)
        if process.returncode != 0:
            tail = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
            raise StepFailedError(
                "\n".join(line[:200] for line in tail)
                + f"\n\n{command[0]} ended with {process.returncode}; its output is in {self.log}"
            )


def _copy(output: IO[bytes], log: IO[bytes]) -> None:
    """Copy `output` to `log` until it ends, printing every TICK_S seconds how far it has come."""
    began = ticked = time.monotonic()
    progress = ""
    while True:
        ready, _, _ = select.select([output], [], [], TICK_S)
        if ready:
            chunk = os.read(output.fileno(), 65536)
            if not chunk:
                return
            log.write(chunk)
            if percentages := re.findall(rb"\[ *(\d+)%\]", chunk):
                progress = f"({percentages[-1].decode()}%)"
        if (now := time.monotonic()) - ticked >= TICK_S:
            ticked = now
            print(f"\n{f'  {now - began:.0f} s {progress}':<{TITLE_WIDTH}}", end="", flush=True)


@contextmanager
def alone(lock: Path) -> Iterator[IO[str]]:
    """Hold `lock`, an empty file, waiting for another run of set-up that has it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another set-up of this project", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle


def _die_with_parent() -> None:
    """Have the kernel end this process when set-up is killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
