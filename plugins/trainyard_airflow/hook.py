"""The provider's Spark hook, run in client mode as this project needs it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Self

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from trainyard_airflow import masking


class ClientHook(SparkSubmitHook):
    """The provider's hook with more masked, the job's own cause kept, and a session of its own."""

    cause: str = ""
    last_line: str = ""

    @classmethod
    def adopt(cls, hook: SparkSubmitHook) -> Self:
        """Take over a hook that the provider's operator made from its arguments."""
        adopted = cls.__new__(cls)
        adopted.__dict__.update(hook.__dict__)
        return adopted

    def run(self, application: str, environment: Mapping[str, str]) -> int:
        """Run spark-submit to its end and return its exit code."""
        try:
            self.submit(
                application,
                env=dict(environment),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                encoding="utf-8",
                errors="replace",
            )
        except AirflowException:
            code = self.exit_code()
            if code is None:
                raise
            return code
        return 0

    def end_driver(self) -> None:
        """Kill a driver that runs on YARN or Kubernetes; one below spark-submit ends with it."""
        if self._connection["deploy_mode"] == "cluster":
            self.on_kill()

    def exit_code(self) -> int | None:
        """The exit code, None while spark-submit runs or before it does."""
        return None if self._submit_sp is None else self._submit_sp.poll()

    def _mask_cmd(self, connection_cmd: str | list[str]) -> str:
        if isinstance(connection_cmd, str):
            return masking.mask(connection_cmd)
        return masking.mask_command(connection_cmd)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        # The provider's own reading logs the lines, and finds in them what YARN's and Kubernetes'
        # drivers are killed by.
        super()._process_spark_submit_log(self._seen(itr))

    def _seen(self, lines: Iterator[Any]) -> Iterator[str]:
        for line in lines:
            text = masking.mask(str(line).rstrip())
            if text.startswith("cause: "):
                self.cause = text
            self.last_line = text.strip() or self.last_line
            yield text
