"""A run of a job inside a test, without its own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainyard.job import Run
from trainyard.rundir import EventWriter, read_events


def run_in(directory: Path, claim: int = 1) -> Run:
    """A run whose events can be read at once."""
    events = EventWriter(str(directory), claim=claim, writer="driver", every=0)
    return Run(directory=str(directory), claim=claim, events=events)


def notes(directory: Path) -> list[str]:
    """The notes that a run wrote."""
    events: list[dict[str, Any]] = read_events(str(directory), {})
    return [event["text"] for event in events if event["kind"] == "note"]
