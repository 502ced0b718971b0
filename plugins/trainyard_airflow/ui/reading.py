"""Reads what jobs wrote, for pages: whatever lies there, a page is shown."""

from __future__ import annotations

import json
import logging
from typing import Any

from trainyard import store

_MOST_BYTES = 64 * 2**20
"""Of an object; none that a job writes is near."""

_log = logging.getLogger(__name__)


def read_bytes(uri: str) -> bytes | None:
    """An object; None where it is not there, cannot be read, or is too large to be a job's."""
    try:
        data = store.read_bytes(uri, most=_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("%s cannot be read: %s", uri, error)
        return None
    if len(data) > _MOST_BYTES:
        _log.warning("%s is larger than anything that a job writes.", uri)
        return None
    return data


def read_object(uri: str) -> dict[str, Any] | None:
    """A JSON object; None where it is not there, or none."""
    data = read_bytes(uri)
    if data is None:
        return None
    try:
        found = json.loads(data)
    except (RecursionError, ValueError) as error:
        _log.warning("%s is no JSON: %s", uri, error)
        return None
    if not isinstance(found, dict):
        _log.warning("%s holds no JSON object.", uri)
        return None
    return found
