"""Keeps secret Spark configuration out of the command line, which every user of a machine sees."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk.log import mask_secret

from trainyard_airflow import masking


@contextmanager
def private_conf(
    conf: Mapping[str, Any], properties_file: str | None, environment: Mapping[str, str]
) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Move secrets from `conf` to a properties file that lives as long as the block.

    Args:
        conf: Spark configuration for the command line.
        properties_file: the user's own file; its content is kept.
        environment: of spark-submit, which says where its spark-defaults.conf is.

    Yields:
        The configuration that is no secret, and the properties file to use.
    """
    public, secret = masking.split(conf)
    if not secret:
        yield public, properties_file
        return
    for key, value in secret.items():
        for hidden in masking.secrets_of(key, value):
            mask_secret(hidden)
    # Spark reads a properties file instead of its spark-defaults.conf, not besides it.
    kept = properties_file or spark_defaults(environment)
    lines = [f"{key} {_escaped(value)}\n" for key, value in secret.items()]
    if kept is not None:
        lines.insert(0, Path(kept).read_text(encoding="utf-8") + "\n")
    with tempfile.TemporaryDirectory(prefix="trainyard-") as folder:
        path = Path(folder, "spark.conf")
        path.touch(mode=0o600)
        path.write_text("".join(lines), encoding="utf-8")
        yield public, str(path)


def spark_defaults(environment: Mapping[str, str]) -> str | None:
    """The spark-defaults.conf that spark-submit reads in an environment, if there is one."""
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (home and str(Path(home, "conf")))
    path = Path(folder, "spark-defaults.conf") if folder else None
    return str(path) if path is not None and path.is_file() else None


def _escaped(value: str) -> str:
    """A value as a Java properties file has it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
