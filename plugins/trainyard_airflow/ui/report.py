"""What an evaluation and a training wrote into their reports."""

from __future__ import annotations

import csv
import io
import logging
import math
from collections.abc import Mapping
from typing import Any

from trainyard import store
from trainyard.dataset import REGRESSION
from trainyard.layout import CHARTS, METRICS, REPORT, RESULT, TRIALS_REPORT, VERDICT, join
from trainyard_airflow import masking
from trainyard_airflow.gate import SMALLER_IS_BETTER
from trainyard_airflow.ui.reading import read_bytes, read_object

_MOST_FEATURES = 20
_IMPORTANCES = "importances.csv"
_MOST_TRIALS = 20
_OF_A_TRIAL = ("trial", "state", "value", "params", "seconds")

_log = logging.getLogger(__name__)


def verdict(run_dir: str) -> dict[str, Any] | None:
    """What the gate said of an evaluation; None before."""
    return read_object(join(run_dir, REPORT, VERDICT))


def main_metric(result: Mapping[str, Any], decision: Mapping[str, Any] | None) -> str:
    """The metric by which an evaluation is told in one number: the gate's, where it has decided."""
    decided = (decision or {}).get("metric")
    if isinstance(decided, str) and decided in (result.get("metrics") or {}):
        return decided
    return "rmse" if result.get("task") == REGRESSION else "accuracy"


def evaluation(run_dir: str) -> dict[str, Any] | None:
    """An evaluation's metrics, the figures of its charts, the gate's verdict, and its pictures."""
    directory = join(run_dir, REPORT)
    metrics = read_object(join(directory, METRICS))
    if metrics is None:
        return None
    settings = (read_object(join(run_dir, RESULT)) or {}).get("settings")
    decision = verdict(run_dir)
    return {
        "main": main_metric(metrics, decision),
        "confidence": settings.get("confidence") if isinstance(settings, dict) else None,
        "smaller_is_better": sorted(SMALLER_IS_BETTER),
        "task": metrics.get("task"),
        "rows": metrics.get("rows"),
        "metrics": metrics.get("metrics"),
        "model": metrics.get("model"),
        "champion": metrics.get("champion"),
        "differences": metrics.get("differences"),
        "comparison": metrics.get("comparison"),
        "slices": metrics.get("slices"),
        "charts": read_object(join(directory, CHARTS)),
        "verdict": decision,
        "pictures": pictures(run_dir),
    }


def pictures(run_dir: str) -> list[str]:
    """The names of a report's pictures."""
    try:
        names = store.list_names(join(run_dir, REPORT))
    except OSError:
        return []
    return [name for name in names if name.endswith(".png")]


def importances(run_dir: str) -> list[dict[str, Any]]:
    """The features that boosted trees go by, the first ones first; none for a network."""
    data = read_bytes(join(run_dir, REPORT, _IMPORTANCES)) or b""
    try:
        lines = list(csv.DictReader(io.StringIO(data.decode())))
    except (csv.Error, UnicodeDecodeError) as error:
        _log.warning("The importances in %s cannot be read: %s", run_dir, error)
        return []
    return [
        {name: value if name == "feature" else _number(value) for name, value in line.items()}
        for line in lines[:_MOST_FEATURES]
    ]


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (OverflowError, TypeError, ValueError):
        return None


def search(run_dir: str) -> dict[str, Any] | None:
    """What a search has tried, the best trials first; None where there was none."""
    found = read_object(join(run_dir, REPORT, TRIALS_REPORT))
    if found is None or not isinstance(found.get("trials"), list):
        return None
    trials = [trial for trial in found["trials"] if isinstance(trial, dict)]
    sign = -1 if found.get("grows") else 1

    def place(trial: Mapping[str, Any]) -> float:
        value = _number(trial.get("value")) if trial.get("state") == "complete" else None
        return math.inf if value is None else sign * value

    return {
        "metric": found.get("metric"),
        "importances": found.get("importances"),
        "count": len(trials),
        "trials": [
            {
                **{name: trial.get(name) for name in _OF_A_TRIAL},
                "cause": masking.mask(str(trial.get("cause") or "")),
            }
            for trial in sorted(trials, key=place)[:_MOST_TRIALS]
        ],
    }
