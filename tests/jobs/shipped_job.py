"""A driver whose executors have an environment of their own, which test_shipping packs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainyard.errors import JobError
from trainyard.executors import check_executors
from trainyard.session import spark_session


def seen(_: Any) -> Iterator[dict[str, str]]:
    """What an executor imports."""
    import added_package  # type: ignore[import-not-found]
    import my_module  # type: ignore[import-not-found]
    import packed_package  # type: ignore[import-not-found]

    import trainyard

    modules = (added_package, my_module, packed_package, trainyard)
    yield {
        "python": sys.executable,
        **{module.__name__: str(module.__file__) for module in modules},
    }


if __name__ == "__main__":
    with spark_session("shipped", imports=("packed_package",)) as spark:
        found: dict[str, Any] = {}
        try:
            check_executors(spark.sparkContext, ("pyarrow",))
        except JobError as error:
            found["refused"] = str(error)
        found |= spark.sparkContext.parallelize([0], 1).mapPartitions(seen).collect()[0]
        Path(sys.argv[1]).write_text(json.dumps(found))
