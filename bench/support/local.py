"""Spark in this process, as a benchmark wants it."""

from __future__ import annotations

import os
import shlex


def local_spark(slots: int, **conf: str) -> None:
    """Let the process's Spark have so many local slots and no pages; before its first session.

    Args:
        slots: tasks that run at a time.
        conf: more settings, with `__` for a dot.
    """
    settings = {"spark.ui.enabled": "false", **{k.replace("__", "."): v for k, v in conf.items()}}
    given = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(
        ["--master", f"local[{slots}]", *given, "pyspark-shell"]
    )
