"""What a survey means for its reader: suspicious columns, the report, and when it is an error."""

from __future__ import annotations

import math
from typing import Any

from trainyard import store
from trainyard.errors import JobError
from trainyard.layout import REPORT, join
from trainyard.rows import Layout
from trainyard.specs import Prepare
from trainyard.survey import MAX_CLASSES, Range, Survey

_EXACT = 2.0**24
_EPOCH_MS = (946_684_800_000.0, 4_102_444_800_000.0)
"""The years 2000 to 2100 in epoch milliseconds."""


def validate(spec: Prepare, layout: Layout, found: Survey, run_dir: str) -> list[str]:
    """Write report/validation.json, and return what a reader of the log should know.

    Raises:
        JobError: there are no rows, more bad ones than `bad_rows` allows, or suspicious columns
            that `findings` refuses.
    """
    suspicious = findings(spec, layout, found)
    report = {
        "source": spec.origin,
        "schema": spec.schema,
        "rows": {"in": found.rows, "bad": found.faults.rows, "allowed": spec.bad_rows},
        "bad": [
            {"reason": reason, "rows": count, "examples": found.faults.examples[reason]}
            for reason, count in found.faults.counts.most_common()
        ],
        "features": summary(layout, found),
        "labels": dict(found.labels) if len(found.labels) <= MAX_CLASSES else None,
        "findings": suspicious,
    }
    store.write_json(join(run_dir, REPORT, "validation.json"), report)
    named = "source" if spec.query is None else "query"
    if found.rows == 0:
        raise JobError(
            f"setting {named!r} is {spec.origin!r}: it has 0 rows.",
            "Check the path and its files."
            if spec.query is None
            else "Check what the query joins and leaves out.",
        )
    found.faults.check(found.rows, spec.origin, allowed=spec.bad_rows)
    if spec.findings == "refuse" and suspicious:
        raise JobError(
            f"{len(suspicious)} suspicious columns in {spec.origin!r}: {' '.join(suspicious)}",
            "Change the columns as said, or set 'findings' to note.",
        )
    return suspicious


def summary(layout: Layout, found: Survey) -> dict[str, Any]:
    """What each feature column holds."""
    described: dict[str, Any] = {}
    for name, places in _places(layout, found):
        whole = _joined(places)
        described[name] = {
            "minimum": None if math.isnan(whole.low) else whole.low,
            "maximum": None if math.isnan(whole.high) else whole.high,
            "whole": whole.whole,
            "missing": whole.missing,
            "constant": sum(place.low == place.high for place in places),
            "width": len(places),
        }
    for name, counted in zip(layout.categories, found.categories, strict=bool(found.categories)):
        described[name] = {"values": len(counted) - ("" in counted), "missing": counted[""]}
    return described


def findings(spec: Prepare, layout: Layout, found: Survey) -> list[str]:
    """What a reader should know of the feature columns before training on them."""
    texts = []
    for name, places in _places(layout, found):
        whole = _joined(places)
        texts += _of_numbers(name, whole, is_scaled=spec.scaling != "none")
        if whole.missing == len(places) * (found.rows - found.faults.rows):
            texts.append(f"feature {name!r} is missing in every row. Leave it out.")
        elif whole.low == whole.high:
            texts.append(f"feature {name!r} is {whole.low:g} in every row. Leave it out.")
    for name, counted in zip(layout.categories, found.categories, strict=bool(found.categories)):
        if len(counted) == 1:
            texts.append(f"feature {name!r} is {next(iter(counted))!r} in every row. Leave it out.")
    return texts


def _of_numbers(name: str, whole: Range, *, is_scaled: bool) -> list[str]:
    if is_scaled:  # in 64-bit floats, before they become 32-bit floats
        return []
    if whole.low >= _EPOCH_MS[0] and whole.high <= _EPOCH_MS[1]:
        text = (
            f"feature {name!r} looks like epoch milliseconds ({whole.low:.0f} to {whole.high:.0f}):"
            " a 32-bit float keeps them to about 2 minutes. Use differences or date parts."
        )
        return [text]
    if whole.whole and max(-whole.low, whole.high) >= _EXACT:
        text = (
            f"feature {name!r} has whole numbers up to {max(-whole.low, whole.high):.0f}: from "
            f"{_EXACT:.0f} on 32-bit floats merge neighbours. Scale it, or leave out an id."
        )
        return [text]
    return []


def _places(layout: Layout, found: Survey) -> list[tuple[str, list[Range]]]:
    """The ranges of each feature column's numbers."""
    if not found.ranges:
        return []
    ranges = found.ranges[: layout.width]
    if len(layout.numbers) == 1:
        return [(layout.numbers[0], ranges)]
    return [(name, [place]) for name, place in zip(layout.numbers, ranges, strict=True)]


def _joined(places: list[Range]) -> Range:
    whole = places[0]
    for place in places[1:]:
        whole = whole.join(place)
    return whole
