"""The extra of a Spark connection: what is misspelt in it would be ignored in silence."""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

from airflow.sdk import Connection

from trainyard.errors import JobError, nearest

_EXTRAS = (
    "deploy-mode",
    "keytab",
    "namespace",
    "principal",
    "queue",
    "rest-port",
    "rest-scheme",
    "spark-binary",
    "web-port",
    "web-scheme",
    "yarn_resourcemanager_webapp_address",
)


def read_extra(conn_id: str, connection: Connection) -> dict[str, Any]:
    """The connection's extra, which Airflow takes for empty where it cannot be read.

    Raises:
        JobError: it is no JSON object, or has a name that would be ignored.
    """
    if not connection.extra:
        return {}
    try:
        extra = json.loads(connection.extra)
    except (ValueError, RecursionError):
        extra = None
    if not isinstance(extra, dict):
        raise JobError(  # its value is not shown: it may hold a secret
            f"the extra of connection {conn_id!r} is no JSON object.",
            'Write it as {"deploy-mode": "cluster"}.',
        )
    _check_extras(conn_id, extra)
    return extra


def _check_extras(conn_id: str, extra: dict[str, Any]) -> None:
    spelled = {_plain(name): name for name in _EXTRAS}
    for name in extra:
        close = difflib.get_close_matches(_plain(name), spelled, n=1, cutoff=0.85)
        known = spelled[close[0]] if close else None
        if known and known != name:
            raise JobError(
                f"connection {conn_id!r} has the extra {name!r}, which the provider ignores.",
                nearest(known, _EXTRAS),
            )
        if _plain(name) == "sparkhome":
            raise JobError(
                f"connection {conn_id!r} has the extra {name!r}, which the provider refuses.",
                "Remove it, and put the folder of spark-submit on PATH.",
            )


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]", "", name).lower()
