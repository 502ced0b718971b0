"""What became of a job: its result, or the error that says why there is none."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard import rundir
from trainyard.errors import JobError, TransientError
from trainyard.job import EXIT_REFUSED
from trainyard.specs import RunDirectory
from trainyard_airflow import masking


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How spark-submit ended: its exit code, its last `cause:` line and its last line of all."""

    code: int
    cause: str
    last_line: str


def failed(error: JobError) -> AirflowException:
    """What a task raises for an error, masked: a permanent one uses up no retries."""
    kind = AirflowFailException if error.permanent else AirflowException
    return kind(masking.mask(str(error)))


def outcome(job: RunDirectory, ended: Ended, earlier_claim: int) -> dict[str, Any]:
    """The result that a job wrote; before it was submitted there was none.

    The manifest decides: a job that answers with success and wrote none has failed, and one whose
    processes ended badly after they had written it has not.

    Args:
        job: the job.
        ended: how its submission ended.
        earlier_claim: number of the last claim before it; a failure of that time is not its own.

    Raises:
        AirflowFailException: the job was refused before any work, or failed for a cause that a
            retry would meet again.
        AirflowException: it failed; a retry continues.
    """
    result = rundir.read_result(job.run_dir)
    if result is not None:
        return result
    if ended.code == EXIT_REFUSED and ended.cause:
        raise AirflowFailException(ended.cause)
    if failure := rundir.read_failure(job.run_dir, after_claim=earlier_claim):
        kind = JobError if failure["permanent"] else TransientError
        raise failed(kind(failure["cause"], failure["fix"]))
    raise AirflowException(ended.cause or _unexplained(job, ended))


def _unexplained(job: RunDirectory, ended: Ended) -> str:
    if ended.code == 0:
        return (
            f"cause: {job.job} ended with exit code 0 and wrote no result into {job.run_dir}."
            " fix: Read its log above; a job's program must end with run_job."
        )
    if ended.code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return (
            f"cause: {job.job} was killed by signal 9, most likely because memory ran out."
            " fix: Give it more memory (driver_memory), or a smaller batch_size or fewer ranks."
        )
    return (
        f"cause: {job.job} ended with exit code {ended.code} before it could say why; its last line"
        f" was: {ended.last_line or '(nothing)'} fix: Read its log above."
    )
