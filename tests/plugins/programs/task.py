"""A task's process: runs the operator and ends it as Airflow's task runner does on a signal."""

import signal
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.sdk.execution_time.task_runner import _run_execute_callable

from trainyard.specs import Prepare
from trainyard_airflow.operators.spark_job import SparkJobOperator

seconds = int(sys.argv[1])
operator = SparkJobOperator(
    task_id="prepare",
    job=Prepare(source="s", features=("f",), label="l"),
    execution_timeout=timedelta(seconds=seconds) if seconds else None,
)
ti = SimpleNamespace(dag_id="a_dag", run_id="a_run", task_id="prepare", map_index=-1, max_tries=2)
context: Any = {"ti": ti, "outlet_events": {}}
signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
try:
    _run_execute_callable(context, operator.execute, operator)
except BaseException as error:
    Path(sys.argv[2]).write_text(f"{type(error).__name__}: {error}")
    raise
