"""The few lines that a reader of the demo wants at its end."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from services.following import clock
from services.installation import ROOT


def summary(
    results: Mapping[str, Mapping[str, Any]], seconds: Mapping[str, float], total: float
) -> str:
    """What came out of a run of mnist_horovod.

    Args:
        results: what each task returned.
        seconds: how long each task took.
        total: how long everything took, Airflow's own start included.
    """
    wrap = textwrap.TextWrapper(
        width=100,
        subsequent_indent=" " * 18,
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = [wrap.fill(f"  {title:<16}{text}") for title, text in _lines(results, seconds, total)]
    return "\n".join(["", *lines, ""])


def _lines(
    results: Mapping[str, Mapping[str, Any]], seconds: Mapping[str, float], total: float
) -> Iterator[tuple[str, str]]:
    evaluated, promoted, predicted = (results[task] for task in ("evaluate", "promote", "predict"))
    accuracy = evaluated["metrics"]["accuracy"]
    champion = promoted["champion"]
    report = evaluated["outputs"]["report"]
    interval = f"interval {accuracy['low']:.4f} to {accuracy['high']:.4f}"
    digits = f"{evaluated['rows']['test']:,} digits that training never saw"
    yield "Test accuracy", f"{accuracy['value']:.4f}, {interval}, on {digits}"
    yield "Gate", promoted["summary"]
    yield "Champion", f"{champion['name']} version {champion['version']} ({champion['uri']})"
    table, rows = predicted["outputs"]["predictions"], predicted["rows"]["out"]
    yield "Predictions", f"{rows:,} rows in {_shown(table)}/"
    yield "Metrics, plots", f"{_shown(report)}/"
    steps = ", ".join(f"{task} {clock(took)}" for task, took in seconds.items())
    yield "Time", f"{clock(total)}: {steps}, the rest is Airflow's"
    yield "Look at it", "make up"


def _shown(path: str) -> str:
    return str(Path(path).relative_to(ROOT)) if Path(path).is_relative_to(ROOT) else path
