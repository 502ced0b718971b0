"""What the events of a run directory say so far: curves, progress, notes; bounded in size."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard import rundir, segments
from trainyard_airflow.ui.thinning import rounded, thin

MOST_POINTS = 1000
"""Of one curve, in one answer."""

MOST_NEW = 400
"""Steps above which what is new is sent anew and thinned."""

_MOST_NOTES = 30
_MOST_TEXT = 2000
_MOST_STAGES = 20
_MOST_VALUES = 8_000_000
"""Of all curves of a run, 64 MB."""


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
            "done": self.done,
            "total": self.total,
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
        is_damaged: whether some are none.
        is_behind: whether some could not be read the last time.
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
    is_behind: bool = False

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add events, in the order of their times; what is none is left out."""
        for event in events:
            try:
                self._take(event)
            except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
                self.is_damaged = True

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["kind"]:
            case "metric":
                self._metric(event["writer"], int(event["step"]), event["values"])
            case "progress":
                self._progress(event)
            case "note":
                text = str(event["text"])[:_MOST_TEXT]
                self.notes.append({"time": float(event["time"]), "text": text})
            case "spark":
                address = str(event["ui"])
                self.spark = address if address.startswith(("http://", "https://")) else None
            case "ranks":
                self.ranks = {
                    "step": int(event["step"]),
                    "rows_per_second": [rounded(float(n)) for n in event["rows_per_second"]],
                    "memory": [int(n) for n in event["memory"]],
                }
            case segments.UNREADABLE:
                self.is_damaged = True

    def _metric(self, writer: str, step: int, values: Mapping[str, float | None]) -> None:
        if not 0 < step * len({*self.curves, *values}) <= _MOST_VALUES:
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
        stage, claim = str(event["stage"])[:_MOST_TEXT], rundir.claim_of(event["writer"])
        now, done = float(event["time"]), float(event["done"])
        known = self.progress.get(stage)
        is_same = known is not None and known.claim == claim
        if known is None and len(self.progress) == _MOST_STAGES:
            raise ValueError(stage)
        self.progress[stage] = Progress(
            stage=stage,
            claim=claim,
            since=known.since if known is not None and is_same else (now, done),
            time=now,
            done=done,
            total=float(event["total"]),
            unit=str(event["unit"])[:_MOST_TEXT],
            figures={str(name): _figure(value) for name, value in event["figures"].items()},
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


def _figure(value: Any) -> float | None:
    return rounded(float(value)) if isinstance(value, int | float) else None
