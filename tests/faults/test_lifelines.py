"""The check that is made after each fault: it finds two drivers that worked at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.lifelines import lifelines, problems_of
from trainyard import rundir, store


def claim(run_dir: Path, number: int, time: float, beat: float | None = None) -> None:
    path = run_dir / "claims" / f"{number:04d}.json"
    store.write_json(str(path), {"number": number, "time": time})
    if beat is not None:
        path.with_suffix(".beat").write_bytes(b"1\n")
        os.utime(path.with_suffix(".beat"), (beat, beat))


def finish(run_dir: Path, number: int, time: float) -> None:
    rundir.write_result(str(run_dir), {"claim": number, "finished": time})


def test_one_after_the_other_is_right(tmp_path: Path) -> None:
    claim(tmp_path, 1, 100.0, beat=103.0)
    claim(tmp_path, 2, 110.0, beat=112.0)
    finish(tmp_path, 2, 115.0)
    first, second = lifelines(tmp_path)
    assert (first.began, first.last, first.is_results) == (100.0, 103.0, False)
    assert (second.began, second.last, second.is_results) == (110.0, 115.0, True)
    assert problems_of([first, second]) == []


def test_a_beat_after_the_next_claim_is_a_duplicate(tmp_path: Path) -> None:
    claim(tmp_path, 1, 100.0, beat=111.5)
    claim(tmp_path, 2, 110.0)
    finish(tmp_path, 2, 115.0)
    assert problems_of(lifelines(tmp_path)) == ["claims 1 and 2 overlap by 1.50 s"]


def test_an_event_of_a_rank_after_the_next_claim_is_a_duplicate(tmp_path: Path) -> None:
    claim(tmp_path, 1, 100.0)
    events = rundir.EventWriter(str(tmp_path), claim=1, writer="rank0")
    events.note("still here")
    events.close()
    claim(tmp_path, 2, 110.0)
    finish(tmp_path, 2, 115.0)
    (problem,) = problems_of(lifelines(tmp_path))
    assert problem.startswith("claims 1 and 2 overlap")


@pytest.mark.parametrize("number", [None, 1])
def test_the_result_is_the_last_claims(tmp_path: Path, number: int | None) -> None:
    claim(tmp_path, 1, 100.0)
    claim(tmp_path, 2, 110.0)
    if number is not None:
        finish(tmp_path, number, 105.0)
    assert problems_of(lifelines(tmp_path)) == ["the result is not that of the last of 2 claims"]


def test_no_claim_is_no_work(tmp_path: Path) -> None:
    assert problems_of(lifelines(tmp_path)) == ["the result is not that of the last of 0 claims"]
