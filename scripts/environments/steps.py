"""Runs set-up's commands: a printed line and a duration each, their own output in a log file."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

TICK_S = 15
TAIL_LINES = 30
TITLE_WIDTH = 56


class StepFailedError(Exception):
    """A command of a step failed; the message says where its output is and how it ended."""


class Steps:
    """One run of set-up, whose commands share a log file.

    They inherit `lock` as their standard input: what outlives a killed run for a moment still holds
    it, so that the next run waits and never works beside it.
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
        with self.log.open("a") as log:
            print("$", *command, file=log, flush=True)
            process = subprocess.Popen(
                command,
                stdin=self._lock,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
            self._wait(process)
        if process.returncode != 0:
            tail = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
            raise StepFailedError(
                "\n".join(line[:200] for line in tail)
                + f"\n\n{command[0]} ended with {process.returncode}; its output is in {self.log}"
            )

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for `process`, saying every TICK_S seconds how far its log has come."""
        began = time.monotonic()
        while True:
            try:
                process.wait(TICK_S)
                return
            except subprocess.TimeoutExpired:
                elapsed = time.monotonic() - began
                print(
                    f"\n{f'  {elapsed:.0f} s {self._progress()}':<{TITLE_WIDTH}}",
                    end="",
                    flush=True,
                )

    def _progress(self) -> str:
        """Answer with the last percentage in the log's end, or an empty string."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 65536))
            percentages = re.findall(rb"\[ *(\d+)%\]", log.read())
        return f"({percentages[-1].decode()}%)" if percentages else ""


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
