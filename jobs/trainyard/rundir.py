"""What is written into a run directory while a job works: events, deaths, failure, result.

Every object is written whole and once, so that the same code serves a disk and an object store.
Airflow's side reads with the functions here; jobs write. `claims` holds the claim.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from trainyard import segments, store
from trainyard.errors import JobError
from trainyard.layout import DEATHS, EVENTS, FAILURE, RESULT, join

AfterStep = Callable[[int, Mapping[str, float | None]], None]
"""What a training calls after an epoch or round: its number from 1, and its figures by name."""


class EventWriter:
    """Writes one process's events as numbered segments, at most one a second.

    An event waits a second at most, also when none follows it: a killed process loses no more. What
    cannot be written waits for the next time, since a store's bad moment must not end the work.

    Args:
        run_dir: the run directory.
        claim: number of the claim under which the process works.
        writer: name of the process, such as `driver` or `rank0`.
    """

    def __init__(self, run_dir: str, *, claim: int, writer: str, every: float = 1.0) -> None:
        self._directory = join(run_dir, EVENTS)
        self._prefix = f"{claim:04d}-{writer}"
        self._every = every
        self._segment = 0
        self._pending: list[bytes] = []
        self._flushed = -math.inf
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def write(self, kind: str, **fields: Any) -> None:
        """Add one event: its kind, the time, plain JSON fields. NaN and infinity become null."""
        event = {"time": time.time(), "kind": kind, **finite(fields)}
        line = json.dumps(event, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        with self._lock:
            self._pending.append(line)
            wait = self._flushed + self._every - time.monotonic()
            if wait <= 0:
                self._flush()
            elif self._timer is None:
                self._timer = threading.Timer(wait, self._flush_late)
                self._timer.daemon = True
                self._timer.start()

    def progress(self, stage: str, done: float, total: float, unit: str, **figures: Any) -> None:
        """Report how far a stage is: `done` of `total` units, with figures worth showing."""
        self.write("progress", stage=stage, done=done, total=total, unit=unit, figures=figures)

    def metric(self, step: int, **values: float | None) -> None:
        """Report metrics at a step: an epoch, a round."""
        self.write("metric", step=step, values=values)

    def note(self, text: str) -> None:
        """Report something a reader of the log should know."""
        self.write("note", text=text)

    def close(self) -> None:
        """Write what is pending."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._flush()

    def _flush_late(self) -> None:
        with self._lock:
            self._timer = None
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        self._flushed = time.monotonic()
        name = segments.name(self._prefix, self._segment + 1)
        with suppress(OSError):
            store.write_bytes(join(self._directory, name), b"".join(self._pending))
            self._segment += 1
            self._pending = []


@contextmanager
def rank0_events(run_dir: str, *, claim: int, launch: int) -> Iterator[EventWriter]:
    """The events of rank 0; each launch of the ranks under a claim has a writer of its own."""
    writer = "rank0" if launch == 1 else f"rank0-launch{launch}"
    with closing(EventWriter(run_dir, claim=claim, writer=writer)) as events:
        yield events


def read_events(
    run_dir: str, seen: dict[str, int], *, most: int | None = None
) -> list[dict[str, Any]]:
    """The events written since the last call, by time.

    A line that is no event becomes one of the kind `segments.UNREADABLE`, at time 0.

    Args:
        run_dir: the run directory.
        seen: the last segment read of each writer; updated in place, plain JSON, `{}` at first.
        most: segments to read, one writer's after the other's; a later call reads on.
    """
    new = [
        (writer, number)
        for writer, numbers in segments.listed(run_dir).items()
        for number in numbers
        if number > seen.get(writer, 0)
    ]
    events: list[dict[str, Any]] = []
    for writer, number in new[:most]:
        events += segments.read(run_dir, writer, number)
        seen[writer] = number
    return _by_time(events)


def tell_resumed(
    events: EventWriter, run_dir: str, unit: str, history: Mapping[int, Mapping[str, float | None]]
) -> None:
    """Note that a training resumes; tell what a killed process kept but had not told yet.

    Args:
        events: of the process that resumes it.
        run_dir: the run directory.
        unit: what a step is, such as `epoch`.
        history: the figures after each step that is done, by its number.
    """
    events.note(f"training resumes after {unit} {len(history)}")
    metrics = [event for event in read_events(run_dir, {}) if event["kind"] == "metric"]
    told = {event["step"]: event["values"] for event in metrics}
    for step, figures in history.items():
        if told.get(step) != finite(figures):
            events.metric(step, **figures)


def last_segments(run_dir: str) -> dict[str, int]:
    """What `seen` of `read_events` is where all that is there was read; nothing is read for it."""
    return {writer: numbers[-1] for writer, numbers in segments.listed(run_dir).items()}


def sample_events(run_dir: str, *, after_claim: int, most: int) -> list[dict[str, Any]]:
    """Events from the first to the last, by time, of about `most` segments however many there are.

    Args:
        run_dir: the run directory.
        after_claim: number of a claim; only later ones' events are read.
        most: segments to read; two of each writer are read in any case.
    """
    later = {w: n for w, n in segments.listed(run_dir).items() if claim_of(w) > after_claim}
    share = max(2, most // max(1, len(later)))
    events: list[dict[str, Any]] = []
    for writer, numbers in later.items():
        for number in _spread(numbers, share):
            events += segments.read(run_dir, writer, number)
    return _by_time(events)


def claim_of(writer: str) -> int:
    """Number of the claim under which an event's writer works."""
    return int(writer.partition("-")[0])


def _spread(numbers: list[int], count: int) -> list[int]:
    """The first and the last of `numbers`, and some between at even distances."""
    if len(numbers) <= count:
        return numbers
    step = (len(numbers) - 1) / (count - 1)
    return [numbers[round(place * step)] for place in range(count)]


def _by_time(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(events, key=lambda event: float(event["time"]))


def finite(value: Any) -> Any:
    """A value with null in place of each NaN and infinity, which JSON has not."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def write_death(run_dir: str, *, claim: int, worker: str, error: BaseException) -> None:
    """Record how a worker died; only the first record of a worker counts."""
    record = {
        "worker": worker,
        "time": time.time(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "error": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, JobError):
        record |= {"cause": error.cause, "fix": error.fix, "permanent": error.permanent}
    store.create_bytes(join(run_dir, DEATHS, f"{claim:04d}-{worker}.json"), store.to_json(record))


def read_deaths(run_dir: str, *, claim: int) -> list[dict[str, Any]]:
    """The death records of one claim's workers, the first to die first."""
    names = [n for n in store.list_names(join(run_dir, DEATHS)) if n.startswith(f"{claim:04d}-")]
    records = [dict(store.read_json(join(run_dir, DEATHS, name))) for name in names]
    return sorted(records, key=lambda record: float(record["time"]))


def write_failure(run_dir: str, error: JobError, *, claim: int, details: str = "") -> None:
    """Record why an attempt failed, and whether another one would fail too."""
    record = {
        "claim": claim,
        "time": time.time(),
        "cause": error.cause,
        "fix": error.fix,
        "permanent": error.permanent,
        "details": details,
    }
    store.write_json(join(run_dir, FAILURE), record)


def read_failure(run_dir: str, *, after_claim: int = 0) -> dict[str, Any] | None:
    """Why the last attempt failed, if it failed under a claim later than `after_claim`."""
    try:
        record = dict(store.read_json(join(run_dir, FAILURE)))
    except FileNotFoundError:
        return None
    return record if record["claim"] > after_claim else None


def write_result(run_dir: str, result: Mapping[str, Any]) -> None:
    """Write the manifest that makes the run directory a result; call it last."""
    store.write_json(join(run_dir, RESULT), finite(result))


def read_result(run_dir: str) -> dict[str, Any] | None:
    """The manifest, or None where the run directory is no result.

    Raises:
        JobError: there is a file in its place that is none.
    """
    uri = join(run_dir, RESULT)
    try:
        result = store.read_json(uri)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _no_result(uri, str(error)) from error
    if not isinstance(result, dict):
        raise _no_result(uri, f"it holds {type(result).__name__}")
    return result


def _no_result(uri: str, problem: str) -> JobError:
    return JobError(
        f"{uri!r} is no result of a job: {problem}.", "Remove it, or use another run directory."
    )
