"""Points in time as settings give them, on the scale of `columns.time_of`."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import NamedTuple

from trainyard.errors import SettingError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Point(NamedTuple):
    """A point on a scale.

    Attributes:
        is_time: whether it is a date or time; else it is a plain number.
        value: microseconds since 1970, or the number.
    """

    is_time: bool
    value: float


def point(name: str, text: str) -> Point:
    """Read a date, a time (UTC unless it says otherwise) or a number.

    Args:
        name: the setting that holds it.
        text: such as `2013-09-01`, `2013-09-01T06:00+02:00` or `17`.

    Raises:
        SettingError: it is none of them.
    """
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if math.isfinite(number):
            return Point(is_time=False, value=number)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fix = "Write it as 2013-09-01, 2013-09-01T06:00 or 17."
        raise SettingError(name, text, "it is no date, time or number", fix) from None
    elapsed = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return Point(
        is_time=True,
        value=float((elapsed.days * 86_400 + elapsed.seconds) * 10**6 + elapsed.microseconds),
    )
