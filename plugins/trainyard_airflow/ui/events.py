"""What the events of a run directory say so far; each segment is read once, for all requests."""

from __future__ import annotations

import logging
import math
import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard import rundir, store
from trainyard_airflow.ui.thinning import rounded, thin

MOST_POINTS = 1000
"""Of one curve, in one answer."""

MOST_NEW = 400
"""Steps above which what is new is sent anew and thinned."""

_MANY = 100
_SAMPLE = 40
"""Segments that a first look reads where there are too many; the rest is read behind it."""

_MOST_RUNS = 64
_MOST_NOTES = 30
_MOST_STEPS = 2_000_000

_log = logging.getLogger(__name__)


@dataclass
class Progress:
    """How far a stage of a job is.

    Attributes:
        since: time and `done` at the first event of the claim that reports it.
    """

    stage: str
    claim: int
    since: tuple[float, float]
    time: float
    done: float
    total: float
    unit: str
    figures: dict[str, Any]

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON, with the seconds that are left at the pace so far; None where unknown."""
        began, done_then = self.since
        done = self.done - done_then
        known = done > 0 and self.done < self.total and self.time > began
        return {
            "stage": self.stage,
            "done": rounded(self.done),
            "total": rounded(self.total),
            "unit": self.unit,
            "time": self.time,
            "figures": self.figures,
            "left": (self.time - began) / done * (self.total - self.done) if known else None,
        }


@dataclass
class Told:
    """What the events told; see the module.

    Attributes:
        seen: the last segment read of each writer.
        curves: values by metric's name, at step 1, 2, ...; NaN where there is none.
        revision: grows when a value that was told is told otherwise, by a training that resumes.
        last: the last step.
        attempts: for each writer of metrics its claim and the first step that it told.
        progress: by stage.
        notes: the last ones.
        ranks: the last throughput and memory of each rank.
        spark: address of the driver's own pages, which are there while it runs.
        is_sample: whether some segments were left out.
        is_damaged: whether some could not be read.
    """

    seen: dict[str, int] = field(default_factory=dict)
    curves: dict[str, array[float]] = field(default_factory=dict)
    revision: int = 0
    last: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    notes: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_MOST_NOTES))
    ranks: dict[str, Any] | None = None
    spark: str | None = None
    is_sample: bool = False
    is_damaged: bool = False

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add events, in the order of their times; what is none is left out."""
        for event in events:
            try:
                self._take(event)
            except (KeyError, TypeError, ValueError, AttributeError):
                self.is_damaged = True

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["kind"]:
            case "metric":
                self._metric(event["writer"], int(event["step"]), event["values"])
            case "progress":
                self._progress(event)
            case "note":
                self.notes.append({"time": float(event["time"]), "text": str(event["text"])})
            case "spark":
                address = str(event["ui"])
                self.spark = address if address.startswith(("http://", "https://")) else None
            case "ranks":
                self.ranks = {
                    "step": event["step"],
                    "rows_per_second": [rounded(float(n)) for n in event["rows_per_second"]],
                    "memory": [int(n) for n in event["memory"]],
                }

    def _metric(self, writer: str, step: int, values: Mapping[str, float | None]) -> None:
        if not 0 < step <= _MOST_STEPS:
            raise ValueError(step)
        self.attempts.setdefault(writer, step)
        for name, value in values.items():
            curve = self.curves.setdefault(name, array("d"))
            curve.extend([math.nan] * (step - len(curve)))
            new, old = math.nan if value is None else float(value), curve[step - 1]
            if step <= self.last and new != old and not (new != new and old != old):
                self.revision += 1
            curve[step - 1] = new
        self.last = max(self.last, step)

    def _progress(self, event: Mapping[str, Any]) -> None:
        stage, claim = str(event["stage"]), rundir.claim_of(event["writer"])
        now, done = float(event["time"]), float(event["done"])
        known = self.progress.get(stage)
        is_same = known is not None and known.claim == claim
        self.progress[stage] = Progress(
            stage=stage,
            claim=claim,
            since=known.since if known is not None and is_same else (now, done),
            time=now,
            done=done,
            total=float(event["total"]),
            unit=str(event["unit"]),
            figures=dict(event["figures"]),
        )

    def resumed(self) -> list[int]:
        """The first step of each attempt after the first one."""
        return sorted({step for step in list(self.attempts.values())[1:] if step > 1})

    def cursor(self) -> str:
        """What a reader who has seen all this asks with the next time."""
        return f"{int(self.is_sample)}.{self.revision}.{len(self.curves)}.{self.last}"

    def new_since(self, cursor: str) -> dict[str, Any]:
        """The curves' points since a cursor: all of them, thinned, if too much has changed.

        Returns:
            `reset`: whether the points replace those known; `cursor`; `last`; `curves`: of each
            metric `[steps, values]`.
        """
        head, _, step = cursor.rpartition(".")
        known = int(step) if step.isdecimal() else 0
        # Up to here: another request may add to them meanwhile.
        now, last = self.cursor(), self.last
        told = {name: values[:last] for name, values in list(self.curves.items())}
        if head != now.rpartition(".")[0] or not 0 <= last - known <= MOST_NEW:
            curves = {name: thin(values, MOST_POINTS) for name, values in told.items()}
            return {"reset": True, "cursor": now, "last": last, "curves": curves}
        new = {
            name: (
                list(range(known + 1, len(values) + 1)),
                [rounded(value) for value in values[known:]],
            )
            for name, values in told.items()
        }
        return {"reset": False, "cursor": now, "last": last, "curves": new}


class Follower:
    """Reads the events of run directories as they come; safe for several threads."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, Told] = OrderedDict()
        self._locks: dict[str, threading.Lock] = {}
        self._filling: set[str] = set()
        self._lock = threading.Lock()

    def told(self, run_dir: str) -> Told:
        """What the events of a run directory say now."""
        with self._lock:
            lock = self._locks.setdefault(run_dir, threading.Lock())
        with lock:
            told = self._told.get(run_dir) or self._first_look(run_dir)
            if not told.is_sample:
                _read_on(run_dir, told)
            self._keep(run_dir, told)
            return told

    def _first_look(self, run_dir: str) -> Told:
        segments = rundir.last_segments(run_dir)
        many, most = (_MANY, _SAMPLE) if store.is_local(run_dir) else (_SAMPLE, _SAMPLE // 4)
        if sum(segments.values()) <= many:
            return Told()
        told = Told(is_sample=True)
        try:
            told.take(rundir.sample_events(run_dir, after_claim=0, most=most))
        except (OSError, ValueError):
            told.is_damaged = True
        with self._lock:
            if run_dir not in self._filling:
                self._filling.add(run_dir)
                threading.Thread(
                    target=self._fill, args=(run_dir,), name="trainyard-events", daemon=True
                ).start()
        return told

    def _fill(self, run_dir: str) -> None:
        """Read all that a sample left out, and put it in the sample's place."""
        whole = Told()
        try:
            _read_on(run_dir, whole)
            self._keep(run_dir, whole)
        finally:
            with self._lock:
                self._filling.discard(run_dir)

    def _keep(self, run_dir: str, told: Told) -> None:
        with self._lock:
            now = self._told.get(run_dir)
            if now is None or now.is_sample or not told.is_sample:
                self._told[run_dir] = told
            self._told.move_to_end(run_dir)
            while len(self._told) > _MOST_RUNS:
                gone, _ = self._told.popitem(last=False)
                self._locks.pop(gone, None)


def _read_on(run_dir: str, told: Told) -> None:
    """Add what was written since the last time; what cannot be read now is read the next time."""
    seen = dict(told.seen)
    try:
        events = rundir.read_events(run_dir, seen)
    except (OSError, ValueError) as error:
        _log.warning("The events of %s cannot be read now: %s", run_dir, error)
        told.is_damaged = True
        return
    told.seen = seen
    told.take(events)
