"""Reads the events of run directories as they come; each segment once, for all requests."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from trainyard import rundir, store
from trainyard_airflow.ui.told import Told

_MANY = 100
_SAMPLE = 40
"""Segments that a first look reads where there are too many; the rest is read behind it."""

_BATCH = 500
"""Segments whose events are held at a time."""

_MOST_RUNS = 64

_log = logging.getLogger(__name__)


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
        except OSError:
            told.is_behind = True
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
            if not (told.seen or told.is_sample):
                self._locks.pop(run_dir, None)
                return
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
    told.is_behind = False
    try:
        while True:
            events = rundir.read_events(run_dir, seen, most=_BATCH)
            if seen == told.seen:
                return
            told.seen = dict(seen)
            told.take(events)
    except OSError as error:
        _log.warning("The events of %s cannot be read now: %s", run_dir, error)
        told.is_behind = True
