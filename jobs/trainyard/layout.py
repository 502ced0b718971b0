"""Where everything of a run lies: the one place that names directories and files.

    <store>/<dag_id>/<run>/<task>/g<generation>/     a run directory; one job works in it
        claims/0001.json        a driver's claim; .beat while it lives, .end when it is over
        tickets/0001.ticket     which submission it waits for; .refused says why one did not work
        events/...jsonl         numbered segments of progress events
        deaths/...json          how a worker died, in its own words
        failure.json            why the last attempt failed
        result.json             the manifest; written last
        commits/...json         which parts of an output are done; see `commits`
        data/ model/ report/ checkpoints/ predictions/ quarantine/ images/     what the jobs make
        study.db                a search's study; trials/00001/ is what each of its trials leaves

A run directory may lie on any filesystem that fsspec knows (`file`, `s3`, `abfs`, ...). Only the
standard library is imported here.
"""

from __future__ import annotations

import hashlib
import re

RESULT = "result.json"
FAILURE = "failure.json"
CLAIMS = "claims"
TICKETS = "tickets"
EVENTS = "events"
DEATHS = "deaths"
COMMITS = "commits"

DATA = "data"
DATASET = "dataset.json"
PREPROCESSING = "preprocessing"
MODEL = "model"
CHECKPOINTS = "checkpoints"
REPORT = "report"
METRICS = "metrics.json"
CHARTS = "charts.json"
VERDICT = "verdict.json"
TRIALS_REPORT = "trials.json"
PREDICTIONS = "predictions"
QUARANTINE = "quarantine"
IMAGES = "images"
STUDY = "study.db"
TRIALS = "trials"

MADE = (
    *(EVENTS, DEATHS, COMMITS, DATA, MODEL, CHECKPOINTS, REPORT),
    *(PREDICTIONS, QUARANTINE, IMAGES),
)
"""The directories that jobs make in a run directory, and of which they remove what is there."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_READABLE = 60


def join(root: str, *parts: str) -> str:
    """Join the parts of a path or URI with single slashes; empty parts do not count."""
    return "/".join([root.rstrip("/"), *filter(None, (part.strip("/") for part in parts))])


def safe_name(name: str) -> str:
    """Turn any name into one that is safe in a path and a Spark glob, without two becoming one.

    A name that needs no change is kept; any other gets a digest of the original.
    """
    readable = _UNSAFE.sub("_", name).strip("._-")[:_READABLE]
    if readable and readable == name:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{readable}-{digest}" if readable else digest


def run_directory(
    store: str, *, dag_id: str, run_id: str, task_id: str, map_index: int = -1, generation: int = 0
) -> str:
    """The directory in which one generation of a task works; retries share it, a clear does not."""
    task = safe_name(task_id) if map_index < 0 else f"{safe_name(task_id)}.{map_index}"
    return join(store, safe_name(dag_id), safe_name(run_id), task, f"g{generation}")
