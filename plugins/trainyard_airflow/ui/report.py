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
from trainyard.layout import CHARTS, METRICS, REPORT, RESULT, VERDICT, join
from trainyard_airflow.gate import SMALLER_IS_BETTER

_MOST_FEATURES = 20
_IMPORTANCES = "importances.csv"

_log = logging.getLogger(__name__)


def main_metric(result: Mapping[str, Any]) -> str:
    """The metric by which an evaluation is told in one number."""
    return "rmse" if result.get("task") == REGRESSION else "accuracy"


def read(uri: str) -> Any:
    """A JSON object of a report; None where it is not there, or none."""
    try:
        return store.read_json(uri)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read: %s", uri, error)
        return None


def evaluation(run_dir: str) -> dict[str, Any] | None:
    """An evaluation's metrics, the figures of its charts, the gate's verdict, and its pictures."""
    directory = join(run_dir, REPORT)
    metrics = read(join(directory, METRICS))
    if not isinstance(metrics, dict):
        return None
    result = read(join(run_dir, RESULT)) or {}
    return {
        "main": main_metric(metrics),
        "confidence": result.get("settings", {}).get("confidence"),
        "smaller_is_better": sorted(SMALLER_IS_BETTER),
        "task": metrics.get("task"),
        "rows": metrics.get("rows"),
        "metrics": metrics.get("metrics"),
        "model": metrics.get("model"),
        "champion": metrics.get("champion"),
        "differences": metrics.get("differences"),
        "comparison": metrics.get("comparison"),
        "slices": metrics.get("slices"),
        "charts": read(join(directory, CHARTS)),
        "verdict": read(join(directory, VERDICT)),
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
    try:
        text = store.read_bytes(join(run_dir, REPORT, _IMPORTANCES)).decode()
        lines = list(csv.DictReader(io.StringIO(text)))
        return [
            {name: value if name == "feature" else _number(value) for name, value in line.items()}
            for line in lines[:_MOST_FEATURES]
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        _log.warning("The importances in %s cannot be read: %s", run_dir, error)
        return []


def _number(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
