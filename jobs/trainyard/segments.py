"""How events lie in a run directory: numbered segments of lines, each written whole and once."""

from __future__ import annotations

import json
import re
from typing import Any

from trainyard import store
from trainyard.layout import EVENTS, join

UNREADABLE = "unreadable"
"""Kind of the event that stands for a line that is none."""

_NAME = re.compile(r"(?P<writer>\d+-.+)-(?P<number>\d+)\.jsonl")
_MOST_BYTES = 16 * 2**20
"""Of a segment, which holds a second's events; what is beyond is no job's."""


def name(writer: str, number: int) -> str:
    """The name of a segment's object."""
    return f"{writer}-{number:06d}.jsonl"


def listed(run_dir: str) -> dict[str, list[int]]:
    """The numbers of each writer's segments, in their order."""
    found: dict[str, list[int]] = {}
    for each in store.list_names(join(run_dir, EVENTS)):
        if parts := _NAME.fullmatch(each):
            found.setdefault(parts["writer"], []).append(int(parts["number"]))
    return found


def read(run_dir: str, writer: str, number: int) -> list[dict[str, Any]]:
    """A segment's events; a line that is none becomes one of the kind `UNREADABLE`, at time 0."""
    uri = join(run_dir, EVENTS, name(writer, number))
    return [_event(line, writer) for line in store.read_bytes(uri, most=_MOST_BYTES).splitlines()]


def _event(line: bytes, writer: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
        told = {"writer": writer, "time": float(event["time"]), "kind": str(event["kind"])}
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return {"writer": writer, "time": 0.0, "kind": UNREADABLE}
    return {**event, **told}
