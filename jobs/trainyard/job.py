"""How every job's program runs: flags, claim, work, and the manifest last."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from trainyard import rundir, tickets
from trainyard.claims import Claim, parent_watch
from trainyard.errors import JobError, TransientError
from trainyard.layout import RESULT, join
from trainyard.specs import RunDirectory

Spec = TypeVar("Spec", bound=RunDirectory)

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_REFUSED = 2
"""Exit codes of a job; `EXIT_REFUSED` says that no work was begun, nor would be the next time."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a job's work may use besides its settings.

    Attributes:
        directory: the run directory.
        claim: number of this driver's claim on it.
        events: where to report progress.
    """

    directory: str
    claim: int
    events: rundir.EventWriter


Work = Callable[[Spec, Run], dict[str, Any]]
"""A job: settings and run in, the result's own fields out (`outputs`, `rows`, `metrics`, ...)."""


def run_job(contract: type[Spec], work: Work[Spec], argv: Sequence[str] | None = None) -> int:
    """Run a job's program and return its exit code.

    A directory that already holds this job's result is left as it is. A failure ends with one line
    `cause: ... fix: ...`, which `failure.json` holds too, with whether it is `permanent`. What was
    not foreseen has its traceback above that line.
    """
    try:
        spec = contract.parse(sys.argv[1:] if argv is None else argv)
        if _is_done(spec):
            print(
                f"{spec.job}: {spec.run_dir} already holds this result; nothing to do.", flush=True
            )
            return EXIT_DONE
        with parent_watch():
            claim = Claim.take(spec.run_dir)
            try:
                return _work(spec, work, claim)
            finally:
                with suppress(OSError):
                    claim.release()
    except JobError as error:
        print(error, file=sys.stderr, flush=True)
        with suppress(OSError, JobError):
            tickets.report_refusal(error)
        return EXIT_REFUSED if error.permanent else EXIT_FAILED


def _is_done(spec: RunDirectory) -> bool:
    result = rundir.read_result(spec.run_dir)
    if result is None:
        return False
    if (result["job"], result["settings"]) != (spec.job, spec.to_mapping()):
        raise JobError(
            f"the run directory {spec.run_dir!r} holds a result of {result['job']} with other "
            "settings.",
            "Use another run directory.",
        )
    return True


def _work(spec: Spec, work: Work[Spec], claim: Claim) -> int:
    number = claim.record.number
    events = rundir.EventWriter(spec.run_dir, claim=number, writer="driver")
    run = Run(directory=spec.run_dir, claim=number, events=events)
    started = time.time()
    try:
        result = work(spec, run)
        events.close()
        rundir.write_result(
            spec.run_dir,
            {
                "job": spec.job,
                "claim": number,
                "started": started,
                "finished": time.time(),
                "settings": spec.to_mapping(),
                **result,
            },
        )
    except Exception as error:
        details = traceback.format_exc()
        known = error if isinstance(error, JobError) else _unknown(spec, error)
        # A store that is full or gone must not hide what went wrong first.
        with suppress(OSError):
            rundir.write_failure(spec.run_dir, known, claim=number, details=details)
        if known is not error:  # a cause that is known needs no traceback, which the file has
            print(details, file=sys.stderr)
        print(known, file=sys.stderr, flush=True)
        return EXIT_FAILED
    finally:
        with suppress(OSError):
            events.close()
    if figures := _figures(result):
        print(f"{spec.job}: {figures}", flush=True)
    print(f"{spec.job}: its result is {join(spec.run_dir, RESULT)}", flush=True)
    return EXIT_DONE


def _figures(result: Mapping[str, Any]) -> str:
    """A result's metrics in a line; one with an interval is `{value, low, high}`."""
    told = []
    for name, metric in (result.get("metrics") or {}).items():
        value = metric["value"] if isinstance(metric, Mapping) else metric
        told += [f"{name} {value:.6g}"] if isinstance(value, int | float) else []
    return ", ".join(told)


def _unknown(spec: RunDirectory, error: Exception) -> TransientError:
    lines = str(error).strip().splitlines()
    summary = lines[0] if lines else "no message"
    return TransientError(
        f"{spec.job} failed with {type(error).__name__}: {summary}",
        "Read the traceback above this line.",
    )
