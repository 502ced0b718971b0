"""Who worked in a run directory, and when: whether two drivers ever did at once."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from services.installation import ROOT

sys.path.insert(0, str(ROOT / "jobs"))
from trainyard import rundir, store
from trainyard.layout import CLAIMS


@dataclass(frozen=True, kw_only=True)
class Lifeline:
    """What one claim did.

    Attributes:
        number: of the claim.
        began: when the driver claimed the directory, in seconds since the epoch.
        last: its last sign of life: an event that it or a rank of it wrote, a beat, or the end of
            the result that it wrote.
        is_results: whether it wrote the result.
    """

    number: int
    began: float
    last: float
    is_results: bool


def lifelines(run_dir: Path) -> list[Lifeline]:
    """The claims of a run directory on this machine's disk, in order."""
    result = rundir.read_result(str(run_dir)) or {}
    events = rundir.read_events(str(run_dir), {})
    lines = []
    for path in sorted((run_dir / CLAIMS).glob("*.json")):
        record = store.read_json(str(path))
        number, began = int(record["number"]), float(record["time"])
        is_results = result.get("claim") == number
        signs = [e["time"] for e in events if e["writer"].startswith(f"{number:04d}-")]
        if (beat := path.with_suffix(".beat")).exists():
            signs.append(beat.stat().st_mtime)
        if is_results:
            signs.append(result["finished"])
        last = max(signs, default=began)
        lines.append(Lifeline(number=number, began=began, last=last, is_results=is_results))
    return lines


def problems_of(lines: list[Lifeline]) -> list[str]:
    """Why it was not exactly one claim, the last one, that did the work; empty if it was.

    A claim whose driver was killed may have been there before. A duplicate is two claims of one
    generation, which share a directory, whose work overlaps: the earlier one gives a sign of life
    after the later one was made.
    """
    found = [
        f"claims {a.number} and {b.number} overlap by {a.last - b.began:.2f} s"
        for a in lines
        for b in lines
        if a.number < b.number and a.last > b.began
    ]
    if [line.number for line in lines if line.is_results] != [len(lines)]:
        found.append(f"the result is not that of the last of {len(lines)} claims")
    return found
