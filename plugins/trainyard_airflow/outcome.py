"""What became of a job: its result, or the error that says why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard import rundir
from trainyard.errors import JobError, TransientError
from trainyard.specs import RunDirectory
from trainyard_airflow import masking


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a submission ended.

    Attributes:
        refusal: the job's own error, where it did no work at all.
        cause: its last `cause:` line, where what it printed is known.
        is_refused: whether its exit code says that it would be refused again.
        unexplained: the error to raise where the job has said nothing.
    """

    refusal: JobError | None = None
    cause: str = ""
    is_refused: bool = False
    unexplained: str


def earlier_result(job: RunDirectory) -> dict[str, Any] | None:
    """The result that an earlier try wrote before Airflow lost sight of it.

    Raises:
        JobError: the directory's result was made with other settings.
    """
    result = rundir.read_result(job.run_dir)
    if result is not None and (result["job"], result["settings"]) != (job.job, job.to_mapping()):
        raise JobError(
            f"{job.run_dir} holds a result that was made with other settings.",
            "Clear the task: it then works in a new directory.",
        )
    return result


def failed(error: JobError) -> AirflowException:
    """What a task raises for an error, masked: a permanent one uses up no retries."""
    kind = AirflowFailException if error.permanent else AirflowException
    return kind(masking.mask(str(error)))


def record_refusal(run_dir: str, error: JobError) -> None:
    """Write down why a job was not begun, for the pages to show: under no driver's claim."""
    kind = JobError if error.permanent else TransientError
    masked = kind(masking.mask(error.cause), masking.mask(error.fix))
    rundir.write_failure(run_dir, masked, claim=0)


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
    if ended.is_refused and ended.cause:
        raise AirflowFailException(ended.cause)
    if ended.refusal is not None:
        raise failed(ended.refusal)
    if failure := rundir.read_failure(job.run_dir, after_claim=earlier_claim):
        raise failed(error_of(failure))
    raise AirflowException(ended.cause or ended.unexplained)


def error_of(record: Mapping[str, Any]) -> JobError:
    """The error that a job wrote down."""
    kind = JobError if record["permanent"] else TransientError
    return kind(record["cause"], record["fix"])
