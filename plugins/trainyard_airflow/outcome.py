"""What became of a job: its result, or the error that says why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard import rundir
from trainyard.errors import JobError
from trainyard.specs import RunDirectory
from trainyard_airflow import masking


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a submission ended.

    Attributes:
        refusal: the job's own words, where it was refused before any work.
        cause: its last `cause:` line, where what it printed is known.
        unexplained: the error to raise where the job has said nothing.
    """

    refusal: str = ""
    cause: str = ""
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


def outcome(job: RunDirectory, ended: Ended, earlier_claim: int) -> dict[str, Any]:
    """The result that a job wrote; before it was submitted there was none.

    The manifest decides: a job that answers with success and wrote none has failed, and one whose
    processes ended badly after they had written it has not.

    Args:
        job: the job.
        ended: how its submission ended.
        earlier_claim: number of the last claim before it; a failure of that time is not its own.

    Raises:
        AirflowFailException: the job was refused before any work; a retry would be too.
        AirflowException: it failed; a retry continues.
    """
    result = rundir.read_result(job.run_dir)
    if result is not None:
        return result
    if ended.refusal:
        raise AirflowFailException(masking.mask(ended.refusal))
    if failure := rundir.read_failure(job.run_dir, after_claim=earlier_claim):
        raise AirflowException(masking.mask(f"cause: {failure['cause']} fix: {failure['fix']}"))
    raise AirflowException(ended.cause or ended.unexplained)
