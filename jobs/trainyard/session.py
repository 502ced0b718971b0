"""The Spark session of a job, with the job's own package shipped to the executors."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard import private
from trainyard.executors import check_executors

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from trainyard.rundir import EventWriter


@contextmanager
def spark_session(
    name: str, imports: Sequence[str] = (), events: EventWriter | None = None
) -> Iterator[SparkSession]:
    """A session that ends with the block.

    The executors run the package that was submitted and not another one on their machine: it
    travels as a zip file. All else (master, memory, cores) is `spark-submit`'s to say.

    Args:
        name: of the application.
        imports: modules that its tasks import; see `executors` for what is compared.
        events: of the job, which are told where Spark's own pages are.

    Raises:
        JobError: the executors cannot run what the driver runs.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    defaults = {
        "spark.log.level": "WARN",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A batch of wide rows must fit a worker, which 10,000 rows of images do not.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024**2),
    }
    for key, value in {**defaults, **private.session_conf()}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if events is not None and session.sparkContext.uiWebUrl:
        events.write("spark", ui=session.sparkContext.uiWebUrl)
    application = ship(session.sparkContext)
    try:
        check_executors(session.sparkContext, imports)
        yield session
    finally:
        session.stop()
        _SHIPPED.pop(application).cleanup()


_SHIPPED: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Where the package lies that an application's executors get: as long as the application lives."""


_SHIPPING = threading.Lock()
"""Held while the package is added: a second thread's tasks must not start without it."""


def ship(context: SparkContext) -> str:
    """Let an application's executors have this package; return the application's id."""
    application = str(context.applicationId)
    with _SHIPPING:
        if application not in _SHIPPED:
            directory = tempfile.TemporaryDirectory(prefix="trainyard-")
            context.addPyFile(str(_package(Path(directory.name))))
            _SHIPPED[application] = directory
    return application


def _package(directory: Path) -> Path:
    root = Path(__file__).parent
    archive = directory / "trainyard.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for source in sorted(root.rglob("*.py")):
            package.write(source, source.relative_to(root.parent))
    return archive
