"""Checkpoints: what a training goes on from, and what becomes of them when the store fails."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from digit_trainings import checkpoint_names, few_digits, losses, run, same_weights, spec_of

from trainyard import rundir, store
from trainyard.dataset import Dataset
from trainyard.errors import TransientError
from trainyard.horovod import checkpoints
from trainyard.horovod.launch import InProcessLauncher
from trainyard.horovod.train import train


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return few_digits(tmp_path_factory.mktemp("digits"))


def stop_in_epoch(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    from trainyard.horovod.loader import Loader

    real = Loader.shuffled

    def shuffled(self: Loader, *, seed: int, epoch: int, stop: int = epoch) -> Any:
        if epoch == stop:
            raise KeyboardInterrupt
        return real(self, seed=seed, epoch=epoch)

    monkeypatch.setattr(Loader, "shuffled", shuffled)


@pytest.mark.parametrize(
    ("name", "params"),
    [("SGD", {"momentum": 0.5}), ("Adam", {"betas": [0.8, 0.99]}), ("RMSprop", {"momentum": 0.5})],
)
def test_resumes_as_if_it_had_not_stopped(
    tmp_path: Path,
    dataset: Dataset,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    params: dict[str, Any],
) -> None:
    settings = {"optimizer": name, "optimizer_params": params, "learning_rate": 0.002, "epochs": 4}
    whole = run(spec_of(tmp_path / "whole", dataset, **settings), dataset)

    spec = spec_of(tmp_path / "stopped", dataset, **settings)
    stop_in_epoch(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        run(spec, dataset)
    monkeypatch.undo()
    resumed = run(spec, dataset)

    assert resumed.resumed == 2
    assert losses(resumed) == losses(whole)
    assert same_weights(resumed, whole)


def test_a_training_that_starts_anew_keeps_its_own_checkpoints(tmp_path: Path) -> None:
    for epoch in (19, 20, 1, 2, 3):
        checkpoints.save(str(tmp_path), epoch, {"epoch": epoch})
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert [name[:12] for name in names] == ["epoch-000002", "epoch-000003"]
    assert checkpoints.load(str(tmp_path), pytest.fail) == {"epoch": 3}


def test_a_corrupt_checkpoint_falls_back_and_says_so(tmp_path: Path, dataset: Dataset) -> None:
    spec = spec_of(tmp_path, dataset)
    whole = run(spec, dataset)
    assert [name[:12] for name in checkpoint_names(tmp_path)] == ["epoch-000002", "epoch-000003"]
    last = tmp_path / "checkpoints" / checkpoint_names(tmp_path)[-1]
    damaged = bytearray(last.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    last.write_bytes(damaged)
    result = InProcessLauncher().run(functools.partial(train, spec, dataset, claim=2), 1)[0]
    assert result.resumed == 2
    assert losses(result) == losses(whole)
    notes = [e["text"] for e in rundir.read_events(str(tmp_path), {}) if e["kind"] == "note"]
    assert f"checkpoint {last.name} is corrupt; falling back to the one before it" in notes
    assert "training resumes after epoch 2" in notes


def test_checkpoints_of_other_settings_are_not_resumed(tmp_path: Path, dataset: Dataset) -> None:
    run(spec_of(tmp_path, dataset, epochs=1), dataset)
    result = run(spec_of(tmp_path, dataset, epochs=1, seed=5), dataset)
    assert result.resumed == 0


def test_checkpoints_outlive_a_change_of_how_the_work_is_done(
    tmp_path: Path, dataset: Dataset
) -> None:
    first = run(spec_of(tmp_path, dataset, epochs=2), dataset)
    changed = {
        "relaunches": 7,
        "stall_timeout": 500,
        "start_timeout": 500,
        "cycle_time_ms": 1.0,
        "checkpoint_every": 2,
        "experiment": "another",
        "model_name": "another",
    }
    again = run(spec_of(tmp_path, dataset, epochs=2, **changed), dataset)
    assert again.resumed == 2
    assert again.history == first.history


def test_killed_after_the_last_epoch_nothing_is_trained_again(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, dataset)
    first = run(spec, dataset)
    # As a kill in the middle of a write would leave it.
    (tmp_path / "checkpoints" / ".epoch-000004-0.pt.x.part").write_bytes(b"half")
    stop_in_epoch(monkeypatch, 1)
    again = run(spec, dataset)
    assert again.resumed == 3
    assert again.history == first.history
    assert same_weights(again, first)


def fails_to_write(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> None:
    real = store.write_bytes

    def write_bytes(uri: str, data: bytes) -> None:
        if name in uri:
            raise error
        real(uri, data)

    monkeypatch.setattr(store, "write_bytes", write_bytes)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError("no")])
def test_a_checkpoint_that_cannot_be_written_is_named_and_loses_nothing(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    whole = run(spec_of(tmp_path / "whole", dataset, epochs=4), dataset)
    spec = spec_of(tmp_path / "run", dataset, epochs=4)
    fails_to_write(monkeypatch, "epoch-000003", error)
    with pytest.raises(TransientError, match=r"the checkpoint of epoch 3 in .* cannot be written"):
        run(spec, dataset)
    assert [n[:12] for n in checkpoint_names(tmp_path / "run")] == ["epoch-000001", "epoch-000002"]
    monkeypatch.undo()
    resumed = run(spec, dataset)
    assert resumed.resumed == 2
    assert losses(resumed) == losses(whole)
    assert same_weights(resumed, whole)


def test_events_that_cannot_be_written_do_not_end_the_training(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_to_write(monkeypatch, "/events/", OSError(28, "No space left on device"))
    assert len(run(spec_of(tmp_path, dataset), dataset).history) == 3


FILLS_UP = """
import functools, sys
from pathlib import Path
from trainyard.dataset import Dataset
from trainyard.errors import TransientError
from trainyard.horovod import checkpoints
from trainyard.horovod.launch import InProcessLauncher
from trainyard.horovod.train import train
from trainyard.specs import TrainHorovod

store, dataset = Path(sys.argv[1]), Dataset.read(sys.argv[2])
filler, save = store / "filler", checkpoints.save

def fill_first(run_dir, epoch, state):
    if epoch == 2 and not filler.exists():
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
    save(run_dir, epoch, state)

def run():
    spec = TrainHorovod(run_dir=f"{store}/run", dataset=sys.argv[2], model_name="m", ranks=1,
                        epochs=2, batch_size=64)
    return InProcessLauncher().run(functools.partial(train, spec, dataset, claim=1), 1)[0]

checkpoints.save = fill_first
try:
    run()
    sys.exit("it was not full")
except TransientError as error:
    print(error)
filler.unlink()
filler.mkdir()
print(run().resumed)
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode != 0,
    reason="this machine lets nobody mount a small tmpfs of his own",
)
def test_a_store_that_fills_up_keeps_the_last_checkpoint(tmp_path: Path, dataset: Dataset) -> None:
    mount = tmp_path / "store"
    mount.mkdir()
    program = tmp_path / "fills_up.py"
    program.write_text(FILLS_UP)
    script = (
        f"mount -t tmpfs -o size=4m tmpfs {mount} && "
        f"exec {sys.executable} {program} {mount} {dataset.directory}"
    )
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    error, resumed = done.stdout.splitlines()
    assert error.startswith(f"cause: the checkpoint of epoch 2 in '{mount}/run/checkpoints' cannot")
    assert "No space left on device" in error
    assert resumed == "1"


def test_checkpoints_every_few_epochs_and_after_the_last(tmp_path: Path, dataset: Dataset) -> None:
    run(spec_of(tmp_path, dataset, epochs=5, checkpoint_every=2), dataset)
    assert [name[:12] for name in checkpoint_names(tmp_path)] == ["epoch-000004", "epoch-000005"]
