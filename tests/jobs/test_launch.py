"""Real ranks in real Spark tasks: how they start, how they fail, and what is left afterwards."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from made_datasets import some_digits, write_dataset

from trainyard import rundir
from trainyard.barrier.engine import LaunchSettings, assign
from trainyard.barrier.failures import explain
from trainyard.barrier.launch import BarrierLauncher
from trainyard.errors import JobError, SettingError
from trainyard.horovod.launch import HorovodEngine, InProcessLauncher
from trainyard.specs import TrainHorovod

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SOON = 60
"""Seconds in which a launch that fails has ended, on a machine that does much else."""


def settings_of(run_dir: Path, **changed: Any) -> LaunchSettings:
    given = {"start_timeout": 60, "stall_timeout": 60, **changed}
    return LaunchSettings(run_dir=str(run_dir), claim=1, **given)


def launcher_of(context: SparkContext, run_dir: Path, **changed: Any) -> BarrierLauncher:
    settings = settings_of(run_dir, **changed)
    return BarrierLauncher(context, settings, engine_of(settings.stall_timeout))


def engine_of(stall_timeout: int = 60) -> HorovodEngine:
    return HorovodEngine(cycle_time_ms=1.0, stall_timeout=stall_timeout)


@pytest.fixture
def launcher(spark: SparkSession, tmp_path: Path) -> BarrierLauncher:
    return launcher_of(spark.sparkContext, tmp_path)


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """A directory in which ranks leave their process numbers."""
    (tmp_path / "pids").mkdir()
    return tmp_path / "pids"


def left(pids: Path) -> list[str]:
    """The ranks that still run, of two that have run."""
    numbers = [path.name for path in pids.iterdir()]
    assert len(numbers) == 2
    return [number for number in numbers if psutil.pid_exists(int(number))]


def ranks_of(launcher: BarrierLauncher, ranks: int) -> list[dict[str, Any]]:
    def fn() -> dict[str, Any]:
        import horovod.torch as hvd
        import torch

        total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum)
        return {
            "rank": hvd.rank(),
            "size": hvd.size(),
            "local_rank": hvd.local_rank(),
            "local_size": hvd.local_size(),
            "cross_size": hvd.cross_size(),
            "total": total.item(),
            "pid": os.getpid(),
        }

    return launcher.run(fn, ranks)


def test_ranks_find_each_other_and_answer_in_order(launcher: BarrierLauncher) -> None:
    answers = ranks_of(launcher, 2)
    assert [answer["rank"] for answer in answers] == [0, 1]
    assert [answer["local_rank"] for answer in answers] == [0, 1]
    for answer in answers:
        assert (answer["size"], answer["local_size"], answer["cross_size"]) == (2, 2, 1)
        assert answer["total"] == 3.0
    assert len({answer["pid"] for answer in answers}) == 2


def test_fewer_ranks_than_slots(launcher: BarrierLauncher) -> None:
    assert [answer["total"] for answer in ranks_of(launcher, 1)] == [1.0]


def test_assigns_ranks_by_host() -> None:
    slots = assign(["b", "a", "b", "a", "b"])
    assert [slot.rank for slot in slots] == [0, 3, 1, 4, 2]
    assert [slot.local_rank for slot in slots] == [0, 0, 1, 1, 2]
    assert [slot.local_size for slot in slots] == [3, 2, 3, 2, 3]
    assert [slot.cross_rank for slot in slots] == [0, 1, 0, 1, 0]
    assert [slot.cross_size for slot in slots] == [2, 2, 2, 2, 1]


def test_missing_slots_are_an_error_at_once(launcher: BarrierLauncher) -> None:
    began = time.monotonic()
    with pytest.raises(SettingError) as caught:
        ranks_of(launcher, 3)
    assert time.monotonic() - began < 10
    assert caught.value.name == "ranks"
    assert "'ranks' is 3" in caught.value.cause
    assert "2 slots" in caught.value.cause
    assert "local[3]" in caught.value.fix


def test_slots_that_others_hold_end_in_the_start_timeout(
    spark: SparkSession, tmp_path: Path
) -> None:
    context = spark.sparkContext
    held = tmp_path / "held"
    hold = threading.Thread(target=_hold, args=(context, str(held)))
    hold.start()
    wait_until(held.exists)
    launcher = launcher_of(context, tmp_path, start_timeout=3)
    try:
        with pytest.raises(SettingError) as caught:
            ranks_of(launcher, 2)
    finally:
        context.cancelJobsWithTag("hold")
        hold.join()
    assert caught.value.name == "start_timeout"
    assert not caught.value.permanent
    assert "0 of 2 ranks had a slot" in caught.value.cause


def _hold(context: SparkContext, held: str) -> None:
    def task(_: int) -> None:
        Path(held).touch()
        time.sleep(60)

    with contextlib.suppress(Exception):
        context.addJobTag("hold")
        context.range(1, numSlices=1).map(task).collect()


def wait_until(reached: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def test_dynamic_allocation_is_refused(
    spark: SparkSession, launcher: BarrierLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = spark.sparkContext.getConf().set("spark.dynamicAllocation.enabled", "true")
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    with pytest.raises(SettingError, match=r"spark\.dynamicAllocation\.enabled"):
        ranks_of(launcher, 1)


def test_an_error_on_one_rank_is_the_drivers(
    launcher: BarrierLauncher, tmp_path: Path, pids: Path
) -> None:
    def fn() -> None:
        import horovod.torch as hvd
        import torch

        (pids / str(os.getpid())).touch()
        if hvd.rank() == 1:
            raise ValueError("the sky fell on rank 1")
        hvd.allreduce(torch.ones(1))

    began = time.monotonic()
    with pytest.raises(JobError) as caught:
        launcher.run(fn, 2)
    assert time.monotonic() - began < SOON
    assert "rank1" in caught.value.cause
    assert "ValueError: the sky fell on rank 1" in caught.value.cause
    assert "in fn" in "".join(caught.value.__notes__)
    [first, *_] = rundir.read_deaths(str(tmp_path), claim=1)
    assert first["worker"] == "launch1-rank1"
    wait_until(lambda: not left(pids))


def test_a_ranks_cause_and_fix_survive(launcher: BarrierLauncher) -> None:
    def fn() -> None:
        from trainyard.errors import JobError

        raise JobError("the cause.", "The fix.")

    with pytest.raises(JobError) as caught:
        launcher.run(fn, 2)
    assert (caught.value.cause, caught.value.fix) == ("the cause.", "The fix.")
    assert caught.value.permanent


def test_an_import_that_fails_on_a_rank_is_named(launcher: BarrierLauncher) -> None:
    with pytest.raises(JobError, match=r"ModuleNotFoundError: No module named 'only_here'"):
        launcher.run(_OnlyHere(), 1)


class _OnlyHere:
    """Pickles as a reference to a module that ranks do not have."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("only_here",)

    def __call__(self) -> None: ...


def test_a_killed_rank_is_named_and_the_stage_runs_again(
    launcher: BarrierLauncher, pids: Path
) -> None:
    def fn() -> None:
        import horovod.torch as hvd
        import torch

        (pids / str(os.getpid())).touch()
        for step in range(10_000):
            if step == 50 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(torch.ones(10), name="step")

    began = time.monotonic()
    with pytest.raises(JobError) as caught:
        launcher.run(fn, 2)
    assert time.monotonic() - began < SOON
    assert caught.value.cause.startswith("rank 1 (process ")
    assert "was killed" in caught.value.cause
    assert "memory" in caught.value.fix
    assert [answer["total"] for answer in ranks_of(launcher, 2)] == [3.0, 3.0]
    wait_until(lambda: not left(pids))


def test_horovods_threads_do_not_interrupt_the_computation(launcher: BarrierLauncher) -> None:
    def fn() -> tuple[int, list[int]]:
        threads = [int(task.name) for task in Path("/proc/self/task").iterdir()]
        others = [thread for thread in threads if thread != threading.get_native_id()]
        return os.sched_getscheduler(0), [os.sched_getscheduler(thread) for thread in others]

    for own, others in launcher.run(fn, 2):
        assert own == os.SCHED_OTHER
        assert others.count(os.SCHED_BATCH) >= 2  # its own and Gloo's


@pytest.mark.parametrize("collective", ["sum_over_ranks", "broadcast"])
def test_a_rank_that_stops_answering_ends_the_others(
    spark: SparkSession, tmp_path: Path, pids: Path, collective: str
) -> None:
    launcher = launcher_of(spark.sparkContext, tmp_path, stall_timeout=4)

    def fn() -> None:
        import horovod.torch as hvd
        import torch

        from trainyard.horovod import collective as module

        (pids / str(os.getpid())).touch()
        if hvd.rank() == 1:
            time.sleep(60)
        getattr(module, collective)(torch.ones(10), "step", timeout=4)

    began = time.monotonic()
    with pytest.raises(JobError) as caught:
        launcher.run(fn, 2)
    assert time.monotonic() - began < SOON
    assert "rank 1 of 2 did not answer for stall_timeout = 4 seconds" in caught.value.cause
    wait_until(lambda: not left(pids))


def test_two_ranks_take_the_step_of_all_rows(launcher: BarrierLauncher, tmp_path: Path) -> None:
    """Ranks with unequal rows, the last step short, learn what one process with all rows would."""
    import torch
    import torch.nn.functional as F  # noqa: N812 - torch's own idiom

    from trainyard import networks
    from trainyard.horovod.loader import Loader, Plan
    from trainyard.horovod.pieces import concatenate
    from trainyard.horovod.train import train

    features, labels = some_digits(0, 206)
    features = features / np.float32(255)
    splits = {
        "train": (features[:203], labels[:203]),
        "validation": (features[203:], labels[203:]),
    }
    dataset = write_dataset(tmp_path / "data", splits, classes=10, row_group_rows=50)
    spec = TrainHorovod.from_mapping(
        {
            "run_dir": str(tmp_path),
            "dataset": dataset.directory,
            "network": "torch.nn:Linear",
            "network_params": {"in_features": 784, "out_features": 10},
            "input_shape": [784],
            "epochs": 2,
            "batch_size": 20,
            "learning_rate": 0.05,
            "optimizer_params": {"momentum": 0.5},
            "model_name": "test",
        }
    )
    first, second = launcher.run(functools.partial(train, spec, dataset, claim=1), 2)

    torch.manual_seed(spec.seed)
    network = networks.build(spec.network, spec.network_params)
    plain = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.5)
    plan = Plan(rows=203, size=2, batch_size=20)
    both = [Loader(dataset, "train", plan, rank, streaming=True) for rank in range(2)]
    for epoch in (1, 2):
        seen = 0.0
        for parts in zip(*(rank.shuffled(seed=0, epoch=epoch) for rank in both), strict=True):
            batch = concatenate(parts)
            plain.zero_grad()
            loss = F.cross_entropy(network(batch.features), batch.labels)
            torch.autograd.backward(loss)
            plain.step()
            seen += loss.item() * len(batch)
        assert first.history[epoch - 1].loss == pytest.approx(seen / 203, rel=1e-5)
        with torch.inference_mode():
            scores = network(torch.from_numpy(features[203:]))
            judged = F.cross_entropy(scores, torch.from_numpy(labels[203:])).item()
        assert first.history[epoch - 1].validation_loss == pytest.approx(judged, rel=1e-5)
    assert first.state is not None
    for name, value in network.state_dict().items():
        assert torch.allclose(first.state[name], value, atol=1e-6)
    assert second.state is None
    assert [e.loss for e in second.history] == [e.loss for e in first.history]


def test_a_rank_without_rows_in_a_step_does_not_hang(
    launcher: BarrierLauncher, tmp_path: Path
) -> None:
    from trainyard.horovod.train import train

    splits = {"train": some_digits(0, 9), "validation": some_digits(9, 10)}
    dataset = write_dataset(tmp_path / "data", splits, classes=10)
    spec = TrainHorovod.from_mapping(
        {
            "run_dir": str(tmp_path),
            "dataset": dataset.directory,
            "epochs": 1,
            "batch_size": 1,
            "model_name": "test",
        }
    )
    first, _ = launcher.run(functools.partial(train, spec, dataset, claim=1), 2)
    assert first.rows == {"train": 9, "validation": 1}


def test_a_loss_that_is_not_finite_ends_every_rank(
    launcher: BarrierLauncher, tmp_path: Path
) -> None:
    from trainyard.horovod.train import train

    features, labels = some_digits(0, 64)
    features = features.copy()
    features[40, 5] = float("nan")  # in the rows of rank 1 alone
    dataset = write_dataset(tmp_path / "data", {"train": (features, labels)}, classes=10)
    spec = TrainHorovod.from_mapping(
        {"run_dir": str(tmp_path), "dataset": dataset.directory, "batch_size": 8, "model_name": "t"}
    )
    with pytest.raises(JobError, match=r"the training loss became nan in epoch 1, step \d of 4"):
        launcher.run(functools.partial(train, spec, dataset, claim=1), 2)
    assert not (tmp_path / "checkpoints").exists()


def test_one_process_is_one_rank() -> None:
    def size() -> int:
        import horovod.torch as hvd

        return int(hvd.size())

    assert InProcessLauncher().run(size, 1) == [1]
    assert InProcessLauncher().run(size, 1) == [1]
    with pytest.raises(SettingError, match="'ranks' is 2"):
        InProcessLauncher().run(size, 2)


def death(rank: int, error: str, at: float) -> dict[str, Any]:
    return {
        "worker": f"launch1-rank{rank}",
        "time": at,
        "host": "h",
        "error": error,
        "message": "m",
        "traceback": "t",
    }


def test_the_first_own_error_is_blamed_and_not_the_survivors(tmp_path: Path) -> None:
    deaths = [
        death(0, "HorovodInternalError", 1.0),
        death(2, "KeyError", 2.0),
        death(1, "ValueError", 3.0),
    ]
    error = RuntimeError("barrier task ResultTask(0, 0) finished unsuccessfully")
    found = explain(error, deaths, {0: {"partition": 0}}, 3, settings_of(tmp_path), engine_of())
    assert found.cause == "rank2 on h failed with KeyError: m."
    assert not found.permanent


def test_ranks_leave_no_ring_in_their_processes(
    launcher: BarrierLauncher, spark: SparkSession
) -> None:
    """A Horovod of one process, such as a trial's, would look for it."""

    def ring(_: object) -> list[str]:
        return [name for name in os.environ if name.startswith("HOROVOD_GLOO_RENDEZVOUS")]

    assert launcher.run(lambda: os.getpid(), 2)
    assert spark.sparkContext.range(8, numSlices=4).flatMap(ring).collect() == []
