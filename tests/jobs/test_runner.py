"""How every job's program ends: its result, its exit code, and what it says of a failure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainyard import rundir
from trainyard.claims import Claim
from trainyard.contract import setting
from trainyard.errors import JobError, TransientError
from trainyard.job import EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, Run, run_job
from trainyard.sparkerrors import unwrapped
from trainyard.specs import RunDirectory


@dataclass(frozen=True, kw_only=True)
class Count(RunDirectory):
    """Count."""

    job = "count"

    upto: int = setting(3, minimum=0, help="How far.")


def is_permanent(run_dir: Path) -> bool:
    failure = rundir.read_failure(str(run_dir))
    assert failure is not None
    return bool(failure["permanent"])


def test_the_result_is_written_last(tmp_path: Path) -> None:
    seen: list[Any] = []

    def work(spec: Count, run: Run) -> dict[str, Any]:
        seen.append((rundir.read_result(run.directory), run.claim))
        return {"rows": {"in": spec.upto}, "metrics": {"loss": float("nan")}}

    argv = [f"--run-dir={tmp_path}", "--upto=5"]
    assert run_job(Count, work, argv) == EXIT_DONE
    result = rundir.read_result(str(tmp_path))
    assert result is not None
    assert seen == [(None, 1)]
    assert result["rows"] == {"in": 5}
    assert result["metrics"] == {"loss": None}
    assert (result["job"], result["claim"], result["settings"]["upto"]) == ("count", 1, 5)
    assert result["started"] <= result["finished"]
    assert (tmp_path / "claims" / "0001.end").exists()

    assert run_job(Count, work, argv) == EXIT_DONE
    assert len(seen) == 1


def test_the_metrics_of_a_result_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accuracy = {"value": 0.9614999, "low": 0.9, "high": 1.0}
    metrics = {"accuracy": accuracy, "validation_loss": None, "epochs": 30}
    assert run_job(Count, lambda *_: {"metrics": metrics}, [f"--run-dir={tmp_path}"]) == EXIT_DONE
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"{Count.job}: accuracy 0.9615, epochs 30"


def test_other_settings_are_no_result_of_this_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job(Count, lambda spec, run: {}, [f"--run-dir={tmp_path}"]) == EXIT_DONE
    again = [f"--run-dir={tmp_path}", "--upto=9"]
    assert run_job(Count, lambda spec, run: {}, again) == EXIT_REFUSED
    assert "with other settings" in capsys.readouterr().err


def test_a_known_failure_ends_with_its_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(spec: Count, run: Run) -> dict[str, Any]:
        raise JobError("the table is empty.", "Fill it.")

    assert run_job(Count, work, [f"--run-dir={tmp_path}"]) == EXIT_FAILED
    assert capsys.readouterr().err == "cause: the table is empty. fix: Fill it.\n"
    failure = rundir.read_failure(str(tmp_path))
    assert failure is not None
    assert (failure["claim"], failure["cause"]) == (1, "the table is empty.")
    assert failure["permanent"] is True
    assert rundir.read_failure(str(tmp_path), after_claim=1) is None
    assert rundir.read_result(str(tmp_path)) is None


def test_an_unknown_failure_names_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(spec: Count, run: Run) -> dict[str, Any]:
        raise KeyError("x")

    assert run_job(Count, work, [f"--run-dir={tmp_path}"]) == EXIT_FAILED
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "KeyError: 'x' fix:" in told.splitlines()[-1]
    assert is_permanent(tmp_path) is False


def test_what_may_be_over_the_next_time_is_not_permanent(tmp_path: Path) -> None:
    def work(spec: Count, run: Run) -> dict[str, Any]:
        raise TransientError("rank 1 was killed.", "Give it memory.")

    assert run_job(Count, work, [f"--run-dir={tmp_path}"]) == EXIT_FAILED
    assert is_permanent(tmp_path) is False


def test_a_store_that_is_gone_does_not_hide_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"

    def work(spec: Count, run: Run) -> dict[str, Any]:
        run.events.note("this cannot be written later")
        while not (run_dir / "claims" / "0001.beat").exists():
            time.sleep(0.01)
        run_dir.rename(tmp_path / "moved")
        run_dir.write_text("no directory any more")
        run.events.note("nor this")
        raise JobError("the disk is full.", "Free some space.")

    assert run_job(Count, work, [f"--run-dir={run_dir}"]) == EXIT_FAILED
    assert capsys.readouterr().err.splitlines()[-1].startswith("cause: the disk is full.")


def test_a_failed_directory_can_be_tried_again(tmp_path: Path) -> None:
    attempts: list[int] = []

    def work(spec: Count, run: Run) -> dict[str, Any]:
        attempts.append(run.claim)
        if len(attempts) == 1:
            raise ValueError
        return {}

    argv = [f"--run-dir={tmp_path}"]
    assert [run_job(Count, work, argv), run_job(Count, work, argv)] == [EXIT_FAILED, EXIT_DONE]
    assert attempts == [1, 2]


@pytest.mark.parametrize("flag", ["--upto=-1", "--up=3", "--upto"])
def test_a_wrong_flag_is_refused_before_anything_is_written(tmp_path: Path, flag: str) -> None:
    argv = [f"--run-dir={tmp_path / 'run'}", flag]
    assert run_job(Count, lambda spec, run: {}, argv) == EXIT_REFUSED
    assert not (tmp_path / "run").exists()


def test_a_live_claim_is_refused(tmp_path: Path) -> None:
    claim = Claim.take(str(tmp_path))
    # A task that is retried later may find it free; EXIT_REFUSED would use up no retry.
    assert run_job(Count, lambda spec, run: {}, [f"--run-dir={tmp_path}"]) == EXIT_FAILED
    claim.release()


@pytest.mark.parametrize("kind", [JobError, TransientError])
def test_what_spark_wraps_keeps_its_kind(kind: type[JobError]) -> None:
    error = kind("the file is gone.", "Bring it.")
    text = f"Job aborted.\n  File x.py\ntrainyard.errors.{kind.__name__}: {error}\n  at java"
    with pytest.raises(JobError) as caught, unwrapped():
        raise RuntimeError(text)
    assert type(caught.value) is kind
    assert (caught.value.cause, caught.value.fix) == (error.cause, error.fix)
