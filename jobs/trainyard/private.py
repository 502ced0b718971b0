"""Spark configuration and variables that a driver gets by its environment, which nobody else sees.

What stands in a command line shows in the process list of the machine; a process's environment does
not. The session takes from here what the driver was given, and gives the executors what they need.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

CONF = "TRAINYARD_SPARK_CONF"
"""Variable of a driver: secret Spark configuration, as a JSON object of texts."""

EXECUTOR_VARIABLES = "TRAINYARD_EXECUTOR_VARIABLES"
"""Variable of a driver: names of its variables that executors get too, as a JSON list."""


def variables(conf: Mapping[str, str], executors: Iterable[str]) -> dict[str, str]:
    """The variables by which a driver gets secret configuration, and names for the executors."""
    made = {CONF: json.dumps(dict(conf)), EXECUTOR_VARIABLES: json.dumps(sorted(executors))}
    return {name: value for name, value in made.items() if value not in ("{}", "[]")}


def session_conf() -> dict[str, str]:
    """What the environment adds to the configuration of a driver's session."""
    conf: dict[str, str] = json.loads(os.environ.get(CONF, "{}"))
    names: list[str] = json.loads(os.environ.get(EXECUTOR_VARIABLES, "[]"))
    given = {f"spark.executorEnv.{n}": os.environ[n] for n in names if n in os.environ}
    return {**given, **conf}
