"""Who works in a run directory: one driver at a time, by a lease that its heartbeat renews.

No driver works that nobody waits for; see `tickets`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

from trainyard import store, tickets
from trainyard.errors import JobError, TransientError
from trainyard.layout import CLAIMS, MADE, join
from trainyard.repeating import Repeating

BEAT_SECONDS = 3.0
"""How often a live claim renews its beat."""

LEASE_SECONDS = 15.0
"""How long a claim without a new beat counts as live."""


@dataclass(frozen=True, kw_only=True)
class ClaimRecord:
    """Who claimed a run directory.

    Attributes:
        number: 1 for the directory's first driver, and so on.
        host: name of the driver's machine.
        boot: identity of that machine's kernel since it started, and of the process namespace in
            it; empty where the system tells neither.
        pid: the driver's process.
        started: clock ticks after boot at which that process started; 0 where unknown.
        session: the driver's process session, which its launcher made.
        submission: the cluster's id of the driver, when it has one.
        time: seconds since the epoch.
    """

    number: int
    host: str
    boot: str
    pid: int
    started: int
    session: int
    submission: str
    time: float

    def is_here(self) -> bool:
        """Whether the claiming process ran on this machine since its last start."""
        return bool(self.boot) and (self.host, self.boot) == (socket.gethostname(), _boot_id())

    def process_lives(self) -> bool:
        """Whether the claiming process still runs; only meaningful where `is_here` holds."""
        return _process_start(self.pid) == self.started


class Claim:
    """One driver's hold on a run directory.

    A second driver that finds a live claim is refused before it does any work. A claim lives while
    its process does (same machine) or while its beat changes (another machine). A driver that was
    paused past its lease and finds a later claim stops at once.
    """

    def __init__(self, run_dir: str, record: ClaimRecord, on_lost: Callable[[], None]) -> None:
        self.run_dir = run_dir
        self.record = record
        self._on_lost = on_lost
        self._count = 0
        self._beats = Repeating(self._beat, every=BEAT_SECONDS, name="claim-beat")
        self._beats.start()

    @classmethod
    def take(cls, run_dir: str, *, on_lost: Callable[[], None] = lambda: os._exit(75)) -> Self:
        """Claim a run directory.

        Args:
            run_dir: the directory.
            on_lost: called from a thread when a later claim is found; the default ends the process.

        Raises:
            TransientError: a live driver holds it, or Airflow has given this one up.
            JobError: it holds what no job made and a job would remove.
        """
        store.check_writable(run_dir)
        tickets.check(run_dir)
        names = store.list_names(run_dir)  # first: a driver that comes meanwhile makes some
        last = last_claim(run_dir)
        if last is None:
            _check_unused(run_dir, names)
        elif claim_lives(run_dir, last):
            raise _claimed(run_dir, last)
        record = ClaimRecord(
            number=last.number + 1 if last else 1,
            host=socket.gethostname(),
            boot=_boot_id(),
            pid=os.getpid(),
            started=_process_start(os.getpid()),
            session=os.getsid(0),
            submission=_submission_id(),
            time=time.time(),
        )
        made = store.create_bytes(
            _claim_uri(run_dir, record.number, "json"), store.to_json(dataclasses.asdict(record))
        )
        if not made:
            raise _claimed(run_dir, _read_claim(run_dir, record.number))
        claim = cls(run_dir, record, on_lost)
        try:
            tickets.check(run_dir)
        except JobError:
            claim.release()
            raise
        return claim

    def release(self) -> None:
        """Give the directory back; the claim counts as ended at once."""
        self._beats.stop()
        store.write_bytes(_claim_uri(self.run_dir, self.record.number, "end"), b"released\n")

    def _beat(self) -> None:
        self._count += 1
        number = self.record.number
        try:
            store.write_bytes(_claim_uri(self.run_dir, number, "beat"), b"%d\n" % self._count)
            names = store.list_names(join(self.run_dir, CLAIMS))
        except OSError:
            return  # a store that is away for a moment does not end the job
        if _claim_name(number + 1, "json") in names:
            self._beats.call_off()
            self._on_lost()


def last_claim(run_dir: str) -> ClaimRecord | None:
    """The latest claim on a run directory."""
    names = store.list_names(join(run_dir, CLAIMS))
    numbers = [int(name.split(".")[0]) for name in names if re.fullmatch(r"\d+\.json", name)]
    return _read_claim(run_dir, max(numbers)) if numbers else None


def live_claim(run_dir: str, *, ended: Collection[str] = ()) -> ClaimRecord | None:
    """The claim of the driver that works in a run directory now; see `claim_lives`.

    Args:
        run_dir: the directory.
        ended: submissions that their cluster knows to be over: the lease of one is not waited for.
    """
    claim = last_claim(run_dir)
    if claim is None or (claim.submission in ended and not claim.is_here()):
        return None
    return claim if claim_lives(run_dir, claim) else None


def claim_lives(run_dir: str, claim: ClaimRecord) -> bool:
    """Whether a claim's driver still works. Waits up to the lease when only its beat can tell."""
    if _claim_name(claim.number, "end") in store.list_names(join(run_dir, CLAIMS)):
        return False
    if claim.is_here():
        return claim.process_lives()
    beat = _read_beat(run_dir, claim.number)
    deadline = time.monotonic() + LEASE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.5)
        if _read_beat(run_dir, claim.number) != beat:
            return True
    return False


def _check_unused(run_dir: str, names: Collection[str]) -> None:
    for name in MADE:
        if name in names:
            raise JobError(
                f"the run directory {run_dir!r} holds {name!r}, which no job made and a job would "
                "remove.",
                "Use a new or an empty run directory.",
            )


def _claimed(run_dir: str, claim: ClaimRecord) -> TransientError:
    where = f"process {claim.pid} on {claim.host}" + (
        f" (submission {claim.submission})" if claim.submission else ""
    )
    return TransientError(
        f"the directory {run_dir!r} is claimed by a live driver: {where}.",
        "Wait until it ends, kill it, or use another directory.",
    )


def _claim_name(number: int, suffix: str) -> str:
    return f"{number:04d}.{suffix}"


def _claim_uri(run_dir: str, number: int, suffix: str) -> str:
    return join(run_dir, CLAIMS, _claim_name(number, suffix))


def _read_claim(run_dir: str, number: int) -> ClaimRecord:
    uri = _claim_uri(run_dir, number, "json")
    try:
        return ClaimRecord(**store.read_json(uri))
    except (TypeError, ValueError) as error:
        raise JobError(
            f"{uri!r} is no claim of a driver: {error}.", "Remove it, or use another run directory."
        ) from error


def _read_beat(run_dir: str, number: int) -> bytes:
    try:
        return store.read_bytes(_claim_uri(run_dir, number, "beat"))
    except FileNotFoundError:
        return b""


def _boot_id() -> str:
    boot = _proc_text("/proc/sys/kernel/random/boot_id").strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}" if boot else ""


def _process_start(pid: int) -> int:
    """Clock ticks after boot at which a process started; -1 when there is none."""
    fields = _proc_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields or fields[0] in ("Z", "X"):
        return -1
    return int(fields[19])


def _proc_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - read in a thread's hot path
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _submission_id() -> str:
    """The standalone master's id of this driver, which its worker puts into the log address."""
    address = urlsplit(os.environ.get("SPARK_DRIVER_LOG_URL_STDERR", ""))
    return parse_qs(address.query).get("driverId", [""])[0]


def parent_watch(every: float = 1.0) -> Repeating:
    """Ends this process when the process that launched it is gone.

    A driver outlives a killed `spark-submit`; it would hold cores for a result that nobody reads.
    """
    parent = os.getppid()

    def look() -> None:
        if os.getppid() != parent:
            os._exit(76)

    return Repeating(look, every=every, name="parent-watch")
