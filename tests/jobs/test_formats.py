"""What lies in a run directory: claims, events, deaths, failures and results, on any store."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard import claims, layout, rundir, store
from trainyard.claims import Claim
from trainyard.errors import JobError
from trainyard.parts import sweep
from trainyard.repeating import Repeating
from trainyard.sources import check_apart


@pytest.fixture(params=["local", "file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "local": str(tmp_path / "a b"),
        "file": f"file://{tmp_path}/c",
        "memory": f"memory://{uuid.uuid4().hex}",
    }[request.param]


class TestStore:
    def test_objects_are_read_as_written(self, root: str) -> None:
        uri = layout.join(root, "x", "y.json")
        assert not store.exists(uri)
        store.write_json(uri, {"a": [1, None, "ü"]})
        store.write_json(uri, {"a": [2]})
        assert store.read_json(uri) == {"a": [2]}
        assert store.list_names(layout.join(root, "x")) == ["y.json"]

    def test_only_the_first_creates(self, root: str) -> None:
        uri = layout.join(root, "one")
        assert store.create_bytes(uri, b"first")
        assert not store.create_bytes(uri, b"second")
        assert store.read_bytes(uri) == b"first"

    def test_what_is_not_there(self, root: str) -> None:
        assert store.list_names(layout.join(root, "nothing")) == []
        with pytest.raises(FileNotFoundError):
            store.read_bytes(layout.join(root, "nothing"))
        store.remove(layout.join(root, "nothing"))

    def test_a_directory_is_removed_with_all_in_it(self, root: str) -> None:
        store.write_bytes(layout.join(root, "d", "e", "f"), b"")
        store.remove(layout.join(root, "d"))
        assert not store.exists(layout.join(root, "d", "e", "f"))

    def test_empty_parts_of_a_path_do_not_count(self) -> None:
        assert layout.join("s3://bucket/", "", "/a/", "", "b") == "s3://bucket/a/b"

    @pytest.mark.parametrize("folder", ["", "folder/"])
    def test_a_sweep_leaves_what_is_kept(self, root: str, folder: str) -> None:
        for name in ("one", "two", "left"):
            store.write_bytes(layout.join(root, folder, name), b"x")
        sweep(root, [f"{folder}one", f"{folder}two"])
        assert store.list_names(layout.join(root, folder)) == ["one", "two"]

    def test_a_path_has_one_spelling(self, tmp_path: Path) -> None:
        (tmp_path / "store" / "dag").mkdir(parents=True)
        (tmp_path / "link").symlink_to(tmp_path / "store")
        (tmp_path / "store" / "out").symlink_to(tmp_path)
        root, inside = str(tmp_path / "store"), str(tmp_path / "store" / "dag" / "run")
        spelled = (f"file:{inside}", f"file://{inside}", f"{tmp_path}/link/dag//./run")
        assert {store.real(uri) for uri in (inside, *spelled)} == {inside}
        for top in (root, f"{root}/.", f"file:{root}/", f"{tmp_path}/link", f"/{root}"):
            assert store.within(top, inside) == store.within(top, spelled[0]) == "dag/run"
        for outside in (
            str(tmp_path),
            root,
            f"{root}/out/x",
            f"{root}/../x",
            "dag/run",
            f"{root}x",
        ):
            assert store.within(root, outside) is None
        assert store.within("s3://b//store/", "s3://b/store/dag") == "dag"
        assert store.within("s3://b/store", "s3://b/stored") is None

    def test_a_source_in_the_results_is_refused_however_it_is_spelled(self, tmp_path: Path) -> None:
        data = tmp_path / "run" / "data"
        data.mkdir(parents=True)
        (data / "x.parquet").touch()
        (tmp_path / "link").symlink_to(data)
        for source in (
            f"{data}/x.parquet",
            f"{tmp_path}/run/../run/data/x.parquet",
            f"{tmp_path}//run/data",
            f"{tmp_path}/link/x.parquet",
            f"{tmp_path}/ru*/data/x.parquet",
            f"file:{data}/x.parquet",
            str(tmp_path),
        ):
            with pytest.raises(JobError, match="where the results would go too"):
                check_apart(source, str(data))
        (tmp_path / "other.parquet").touch()
        check_apart(f"{tmp_path}/*.parquet", str(data))
        check_apart("sample:mnist", str(data))

    @pytest.mark.parametrize("content", ["", "null", "[]", "garbage"])
    def test_foreign_files_are_named(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "result.json").write_text(content)
        with pytest.raises(JobError, match=r"result.json' is no result of a job"):
            rundir.read_result(str(tmp_path))
        (tmp_path / "claims").mkdir()
        (tmp_path / "claims" / "notes.json").write_text(content)
        assert claims.last_claim(str(tmp_path)) is None
        (tmp_path / "claims" / "0002.json").write_text(content)
        with pytest.raises(JobError, match=r"0002.json' is no claim of a driver"):
            claims.last_claim(str(tmp_path))

    def test_what_a_filesystem_raises_is_an_os_error(
        self, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class EndpointConnectionError(Exception):
            pass

        def fail(*_: object, **__: object) -> None:
            raise EndpointConnectionError("no route to the bucket")

        monkeypatch.setattr(store, "filesystem", fail)
        with pytest.raises(OSError, match="EndpointConnectionError: no route to the bucket"):
            store.read_bytes(layout.join(root, "x"))

    def test_nan_is_no_json(self, root: str) -> None:
        with pytest.raises(ValueError, match="not JSON compliant"):
            store.write_json(layout.join(root, "x"), float("nan"))
        assert not store.exists(layout.join(root, "x"))


def test_a_reader_never_sees_half_an_object(tmp_path: Path) -> None:
    target = tmp_path / "object"
    whole = [bytes([i]) * 1_000_000 for i in range(4)]
    store.write_bytes(str(target), whole[0])
    done = threading.Event()

    def write() -> None:
        for _ in range(5):
            for data in whole:
                store.write_bytes(str(target), data)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        assert store.read_bytes(str(target)) in whole
        assert [n for n in store.list_names(str(tmp_path)) if n != "object"] == []
    thread.join()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match="cannot be written"):
        store.check_writable(str(tmp_path / "file" / "run"))


def test_a_scheme_that_nobody_knows_is_named() -> None:
    with pytest.raises(JobError, match="nosuch"):
        store.read_bytes("nosuch://a/b")


class TestNames:
    @given(st.lists(st.text(min_size=1, max_size=80), unique=True, max_size=20))
    def test_two_names_stay_two(self, names: list[str]) -> None:
        assert len({layout.safe_name(name) for name in names}) == len(names)

    @given(st.text(max_size=200))
    def test_a_name_is_safe_in_a_path_and_a_glob(self, name: str) -> None:
        safe = layout.safe_name(name)
        assert 0 < len(safe) <= 80
        assert set(safe) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert safe[0] not in "._"

    def test_runs_that_differ_have_directories_that_differ(self) -> None:
        place: dict[str, Any] = {
            "dag_id": "d",
            "run_id": "manual__2026-11-29T21:55:49+00:00",
            "task_id": "train",
        }
        others: list[dict[str, Any]] = [
            {"dag_id": "e"},
            {"run_id": "manual__2026-11-29T21_55_49+00_00"},
            {"task_id": "group.train"},
            {"map_index": 0},
            {"generation": 1},
        ]
        made = {layout.run_directory("/s", **{**place, **other}) for other in [{}, *others]}
        assert len(made) == 6
        assert all(not set(directory) & set(":+ ") for directory in made)


HOLD = """
import sys, time
from trainyard.claims import Claim
Claim.take(sys.argv[1])
print("claimed", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "claimed\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


class TestClaim:
    def test_a_second_driver_is_refused_while_the_first_lives(
        self, tmp_path: Path, holder: subprocess.Popen[str]
    ) -> None:
        with pytest.raises(JobError, match=f"live driver: process {holder.pid} on"):
            Claim.take(str(tmp_path))

    def test_a_killed_drivers_claim_is_taken_over(
        self, tmp_path: Path, holder: subprocess.Popen[str]
    ) -> None:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        claim = Claim.take(str(tmp_path))
        assert claim.record.number == 2
        claim.release()

    @pytest.mark.parametrize("name", ["data", "images", "quarantine"])
    def test_what_no_job_made_is_not_put_in_danger(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / "notes.txt").touch()
        with pytest.raises(JobError, match=f"holds '{name}', which no job made") as caught:
            Claim.take(str(tmp_path))
        assert caught.value.permanent
        (tmp_path / name).rmdir()
        Claim.take(str(tmp_path)).release()
        (tmp_path / name).mkdir()
        Claim.take(str(tmp_path)).release()

    def test_a_released_claim_is_over_at_once(self, tmp_path: Path) -> None:
        Claim.take(str(tmp_path)).release()
        second = Claim.take(str(tmp_path))
        assert second.record.number == 2
        second.release()

    def test_of_many_at_once_one_wins(self, tmp_path: Path) -> None:
        start = threading.Barrier(8)
        won, lost = [], []

        def take() -> None:
            start.wait()
            try:
                won.append(Claim.take(str(tmp_path)))
            except JobError as error:
                lost.append(error)

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        won[0].release()
        assert (len(won), len(lost)) == (1, 7)

    @pytest.mark.parametrize("beats", [True, False])
    def test_on_another_machine_the_beat_tells(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beats: bool
    ) -> None:
        monkeypatch.setattr(claims, "LEASE_SECONDS", 2.0)
        first = Claim.take(str(tmp_path))
        first.release()
        record = dataclasses.asdict(first.record) | {"number": 2, "host": "elsewhere"}
        store.write_json(str(tmp_path / "claims" / "0002.json"), record)
        stop = threading.Event()

        def beat() -> None:
            count = 0
            while beats and not stop.wait(0.2):
                count += 1
                store.write_bytes(str(tmp_path / "claims" / "0002.beat"), str(count).encode())

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            if beats:
                with pytest.raises(JobError, match="on elsewhere"):
                    Claim.take(str(tmp_path))
            else:
                third = Claim.take(str(tmp_path))
                assert third.record.number == 3
                third.release()
        finally:
            stop.set()
            thread.join()

    def test_a_driver_that_was_paused_learns_that_it_lost(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(claims, "BEAT_SECONDS", 0.1)
        lost = threading.Event()
        first = Claim.take(str(tmp_path), on_lost=lost.set)
        assert not lost.wait(0.5)
        later = dataclasses.asdict(first.record) | {"number": 2}
        store.write_json(str(tmp_path / "claims" / "0002.json"), later)
        assert lost.wait(5)
        first.release()


TELL = """
import sys, time
from trainyard.rundir import EventWriter
writer = EventWriter(sys.argv[1], claim=1, writer="rank0")
while True:
    now = time.time()
    writer.note(str(now))
    print(now, flush=True)
    time.sleep(0.05)
"""


class TestEvents:
    def test_each_event_is_read_once_in_order(self, root: str) -> None:
        driver = rundir.EventWriter(root, claim=1, writer="driver", every=0)
        rank = rundir.EventWriter(root, claim=1, writer="rank-0", every=0)
        seen: dict[str, int] = {}
        driver.note("a")
        rank.progress("train", 1, 4, "epochs", loss=0.5)
        assert [e["kind"] for e in rundir.read_events(root, seen)] == ["note", "progress"]
        rank.metric(1, loss=0.25)
        seen = json.loads(json.dumps(seen))
        (event,) = rundir.read_events(root, seen)
        assert (event["writer"], event["step"], event["values"]) == (
            "0001-rank-0",
            1,
            {"loss": 0.25},
        )
        assert rundir.read_events(root, seen) == []

    def test_what_is_no_event_costs_no_other(self, root: str) -> None:
        rundir.EventWriter(root, claim=1, writer="driver", every=0).note("a")
        store.write_bytes(layout.join(root, "events", "notes.jsonl"), b"x")
        broken = b'{"time": 2, "ki\n[]\n{"time": 1e400, "kind": "note", "text": "b"}\n{"kind": 1}\n'
        store.write_bytes(layout.join(root, "events", "0002-rank0-000001.jsonl"), broken)
        found = rundir.read_events(root, {})
        assert [e["kind"] for e in found] == [*["unreadable"] * 3, "note", "note"]
        assert {e["writer"] for e in found} == {"0001-driver", "0002-rank0"}

    def test_a_few_segments_are_read_at_a_time(self, root: str) -> None:
        for claim in (1, 2):
            events = rundir.EventWriter(root, claim=claim, writer="driver", every=0)
            for number in range(3):
                events.note(f"{claim}{number}")
        seen: dict[str, int] = {}
        read = [[e["text"] for e in rundir.read_events(root, seen, most=4)] for _ in range(3)]
        assert read == [["10", "11", "12", "20"], ["21", "22"], []]

    def test_segments_are_few(self, root: str) -> None:
        writer = rundir.EventWriter(root, claim=1, writer="driver", every=60)
        for number in range(1000):
            writer.note(str(number))
        writer.close()
        assert len(store.list_names(layout.join(root, "events"))) == 2
        assert [e["text"] for e in rundir.read_events(root, {})] == [str(n) for n in range(1000)]

    def test_an_event_is_not_held_back_when_none_follows(self, tmp_path: Path) -> None:
        writer = rundir.EventWriter(str(tmp_path), claim=1, writer="rank0", every=0.5)
        writer.note("first")
        writer.note("second")
        assert len(rundir.read_events(str(tmp_path), {})) == 1
        deadline = time.monotonic() + 10
        while len(rundir.read_events(str(tmp_path), {})) < 2:
            assert time.monotonic() < deadline, "it waits for another event"
            time.sleep(0.05)

    def test_a_killed_writer_loses_a_second_of_events(self, tmp_path: Path) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", TELL, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as teller:
            assert teller.stdout is not None
            told: list[float] = []
            while not told or told[-1] < told[0] + 2.5:
                told.append(float(teller.stdout.readline()))
            teller.kill()
        kept = [float(e["text"]) for e in rundir.read_events(str(tmp_path), {})]
        # The half second more is a busy machine's.
        old = [at for at in told if at < told[-1] - 1.5]
        assert len(old) > 5
        assert kept[: len(old)] == old

    def test_what_cannot_be_written_waits(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(uri: str, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        writer = rundir.EventWriter(str(tmp_path), claim=1, writer="driver", every=0)
        monkeypatch.setattr(store, "write_bytes", full)
        writer.note("first")
        monkeypatch.undo()
        assert rundir.read_events(str(tmp_path), {}) == []
        writer.note("second")
        assert [e["text"] for e in rundir.read_events(str(tmp_path), {})] == ["first", "second"]

    def test_what_is_not_finite_becomes_null(self, root: str) -> None:
        writer = rundir.EventWriter(root, claim=1, writer="driver", every=0)
        writer.progress("train", 0, 1, "epochs", loss=float("nan"), deep=[float("inf"), 1.0])
        (event,) = rundir.read_events(root, {})
        assert event["figures"] == {"loss": None, "deep": [None, 1.0]}


def test_the_first_death_of_each_worker_counts(root: str) -> None:
    for number, worker in ((1, "rank1"), (1, "rank0"), (1, "rank1"), (2, "rank0")):
        rundir.write_death(
            root, claim=number, worker=worker, error=ValueError(f"{worker} in {number}")
        )
        time.sleep(0.01)
    deaths = rundir.read_deaths(root, claim=1)
    assert [(d["worker"], d["error"], d["message"]) for d in deaths] == [
        ("rank1", "ValueError", "rank1 in 1"),
        ("rank0", "ValueError", "rank0 in 1"),
    ]


def test_a_failed_call_does_not_end_the_others() -> None:
    calls: list[int] = []
    enough = threading.Event()

    def fn() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise RuntimeError("the store had a bad moment")
        enough.set()

    with Repeating(fn, every=0.01, name="beat"):
        assert enough.wait(5)
