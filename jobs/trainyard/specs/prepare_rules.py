"""What must hold between the settings of `prepare`: of its source, and of its dates."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from trainyard.errors import SettingError
from trainyard.times import point

if TYPE_CHECKING:
    from trainyard.specs.prepare import Prepare


def check_source(spec: Prepare) -> None:
    """Raise `SettingError` unless there is one source, or tables and a query of them."""
    if (spec.source is None) == (spec.query is None):
        both = spec.source is not None
        raise SettingError(
            "source",
            spec.source,
            "there is a query too" if both else "there is no query either",
            "Leave one of the two out." if both else "Set it, or 'tables' and 'query'.",
        )
    if bool(spec.tables) != (spec.query is not None):
        raise SettingError(
            "tables",
            spec.tables,
            "a query needs them" if spec.query else "there is no query of them",
            "Name each table that the query reads." if spec.query else "Set 'query'.",
        )
    if spec.tables and spec.format != "auto":
        raise SettingError("format", spec.format, "each table's own name tells it", "Leave it out.")
    folded = [name.lower() for name in spec.tables]
    for name, source in spec.tables.items():
        if not isinstance(source, str) or not source.strip() or not name.strip():
            fix = 'Give a path, a URI, table:NAME or sample:NAME, such as {"a": "/data/a.csv"}.'
            raise SettingError("tables", spec.tables, f"{name!r} names no source", fix)
        if folded.count(name.lower()) > 1:
            problem = f"SQL does not tell {name!r} from another that differs in case"
            raise SettingError("tables", spec.tables, problem, "Rename one of them.")


def check_bounds(spec: Prepare) -> None:
    """Raise `SettingError` when the dates of a split by time are no dates or out of order."""
    if not spec.bounds:
        return
    first, start = next(iter(spec.bounds.items()))
    if spec.split_by != "time":
        raise SettingError(
            f"{first}_from",
            start,
            f"a split by {spec.split_by} has no times",
            "Leave it out, or set split_by to time.",
        )
    if "test" not in spec.bounds:
        raise SettingError(
            "test_from",
            None,
            f"{first}_from is {start!r}, and shares do not count beside it",
            "Set it: from when on rows judge the model.",
        )
    points = [(f"{name}_from", point(f"{name}_from", at)) for name, at in spec.bounds.items()]
    for (earlier, one), (later, other) in itertools.pairwise(points):
        if one.is_time != other.is_time or one.value >= other.value:
            raise SettingError(
                later,
                getattr(spec, later),
                f"it does not come after {earlier}, {getattr(spec, earlier)!r}",
                "Give validation, test and holdout dates in this order.",
            )
