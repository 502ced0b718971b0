"""The loop of an estimator's rank: the same as plain PyTorch's, with exact metrics."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from estimator_works import COLUMNS, HELD, ROWS, batches, outputs, run, values, work_of, write
from torch import nn

from trainyard.errors import JobError
from trainyard.horovod.estimator import judge, loop
from trainyard.horovod.estimator import work as work_module
from trainyard.horovod.estimator.rows import ColumnReader, dataset_of, numbers
from trainyard.horovod.estimator.work import Work


def plainly(work: Work, epochs: int = 3, passes: int = 1) -> nn.Module:
    """The model after the same epochs of plain PyTorch."""
    model, optimizer = copy.deepcopy((work.model, work.optimizer))
    for _ in range(epochs):
        several = batches(work, "train")
        for start in range(0, len(several), passes):
            group = several[start : start + passes]
            count = sum(len(rows["y"]) for rows in group)
            optimizer.zero_grad()
            for rows in group:
                out = outputs(model, rows)[:, 0]
                loss = nn.functional.mse_loss(out, rows["y"], reduction="sum") / count
                torch.autograd.backward(loss)
            optimizer.step()
    return model


def same(state: dict[str, Any], model: nn.Module) -> bool:
    return all(
        torch.allclose(state[name], value, atol=1e-6) for name, value in model.state_dict().items()
    )


@pytest.mark.parametrize("passes", [1, 3])
def test_it_does_what_plain_pytorch_does(tmp_path: Path, passes: int) -> None:
    work = work_of(tmp_path, passes=passes)
    assert same(run(work)["network"], plainly(work, passes=passes))


def test_metrics_are_exact_over_batches_of_different_sizes(tmp_path: Path) -> None:
    def largest_error(output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return (output - label).abs().mean()

    work = work_of(tmp_path, metrics=[[largest_error]], epochs=1, val_batch_size=7)
    found = run(work)["history"][0]
    model = plainly(work, epochs=1)
    held = {name: torch.from_numpy(value) for name, value in values(HELD, 1).items()}
    error = outputs(model, held)[:, 0] - held["y"]
    assert found["epoch"] == 0
    assert found["validation"]["loss"] == pytest.approx(error.square().mean().item(), rel=1e-5)
    assert found["validation"]["all_metrics"] == [
        {"group_0_y": pytest.approx(error.abs().mean().item(), rel=1e-5)}
    ]


def test_there_is_one_collective_a_step_and_one_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainyard.horovod import collective, gradients

    names: list[str] = []
    original = collective.sum_over_ranks

    def counted(tensor: torch.Tensor, name: str, timeout: float) -> torch.Tensor:
        names.append(name)
        return original(tensor, name, timeout)

    monkeypatch.setattr(loop, "sum_over_ranks", counted)
    monkeypatch.setattr(gradients, "sum_over_ranks", counted)
    run(work_of(tmp_path, metrics=[[nn.functional.l1_loss]] * 3, epochs=2))
    assert names == (["gradients"] * 4 + ["sums"]) * 2


def test_the_best_epoch_is_kept_and_not_the_last(tmp_path: Path) -> None:
    work = work_of(tmp_path, epochs=6)
    worse = dataclasses.replace(
        work, optimizer=torch.optim.SGD(work.model.parameters(), lr=1.2), run_dir=f"{tmp_path}/w"
    )
    state = run(worse)
    by_loss = [epoch["validation"]["loss"] for epoch in state["history"]]
    best = by_loss.index(min(by_loss))
    assert best < 5, "the rate must be so high that a later epoch is worse"
    assert same(state["best"], plainly(worse, epochs=best + 1))
    resumed = run(dataclasses.replace(worse, epochs=7))
    assert resumed["history"][6]["validation"]["loss"] > min(by_loss), "or the best is another"
    assert same(resumed["best"], plainly(worse, epochs=best + 1))


def test_rows_to_validate_by_decide_where_there_are_any() -> None:
    assert loop.judged_by({"train": {"loss": 1.0}, "validation": {"loss": 2.0}}) == 2
    assert loop.judged_by({"train": {"loss": 1.0}}) == 1


def test_it_resumes_at_the_right_epoch(tmp_path: Path) -> None:
    whole = run(work_of(tmp_path / "whole", shuffle=True, epochs=4))
    half = work_of(tmp_path / "half", shuffle=True, epochs=2)
    run(half)
    resumed = run(dataclasses.replace(half, epochs=4))
    assert resumed["history"] == whole["history"]
    assert [epoch["epoch"] for epoch in resumed["history"]] == [0, 1, 2, 3]
    for kind in ("network", "best"):
        assert all(torch.equal(v, whole[kind][n]) for n, v in resumed[kind].items())


def test_another_order_each_epoch(tmp_path: Path) -> None:
    seen: list[list[float]] = []

    def step(model: Any, optimizer: Any, fitted: Any, loss: Any, *given: Any) -> Any:
        inputs, labels, weights = given[:3]
        seen.append(labels[0].tolist())
        optimizer.zero_grad()
        outputs, labels = fitted(model(*inputs), labels)
        found = loss(outputs, labels, weights)
        found.backward()
        optimizer.step()
        return outputs, found

    work = work_of(tmp_path, minibatch=step, shuffle=True, epochs=2)
    loop_state = run_here(work)
    epochs = [list(itertools.chain(*batches)) for batches in (seen[:4], seen[4:])]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(values(ROWS, 0)["y"].tolist())
    assert loop_state["history"][1]["train"]["loss"] < loop_state["history"][0]["train"]["loss"]


def test_rows_that_fit_the_buffer_are_read_once_and_others_are_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = values(160, 0) | {"y": np.arange(160, dtype=np.float32)}  # ten row groups, in order
    file = write(tmp_path / "sorted", "train", rows)
    dataset = dataset_of(str(tmp_path / "sorted"), COLUMNS, {"train": (file,)})
    work = dataclasses.replace(work_of(tmp_path), datasets={"train": dataset})
    numbers_in_a_row = 5

    reads: list[int] = []

    class Counted(ColumnReader):
        def read(self, parts: Any) -> Any:
            reads.append(len(parts))
            return super().read(parts)

    def labels_of(held_rows: int) -> list[float]:
        reads.clear()
        monkeypatch.setattr(work_module, "HELD_BYTES", held_rows * 4 * numbers_in_a_row)
        loader = work.loader("train", work.plan("train", 1), 0)
        epochs = [list(loader.shuffled(seed=0, epoch=epoch)) for epoch in range(2)]
        assert [sum(map(len, epoch)) for epoch in epochs] == [160, 160]
        return epochs[0][0].labels[:, 0].tolist()

    monkeypatch.setattr(work_module, "ColumnReader", Counted)
    labels_of(160)
    assert sum(reads) == 10, "each row group once"
    mixed = labels_of(159)
    assert sum(reads) == 20, "and in each epoch"
    assert len({label // 16 for label in mixed}) > 6
    assert len({label // 16 for label in labels_of(0)}) == 4


def run_here(work: Work) -> dict[str, Any]:
    """As `run`, with the work's own functions, so that a test sees what they were given."""
    import functools

    from trainyard.horovod.launch import InProcessLauncher

    [state] = InProcessLauncher().run(functools.partial(loop.train, work), 1)
    assert state is not None
    return state


@pytest.mark.parametrize("order", ["usual", "forgets last", "steps by the batches before"])
def test_a_users_own_step_changes_the_weights_as_the_usual_one(tmp_path: Path, order: str) -> None:
    steps_first = order == "steps by the batches before"  # as Horovod's own function does

    def step(
        model: Any,
        optimizer: Any,
        transform_outputs: Any,
        loss_fn: Any,
        inputs: Any,
        labels: Any,
        sample_weights: Any,
        passes: int,
        number: int,
    ) -> Any:
        if steps_first and number:
            optimizer.step()
        if order != "forgets last":
            optimizer.zero_grad()
        outputs, labels = transform_outputs(model(*inputs), labels)
        loss = loss_fn(outputs, labels, sample_weights)
        loss.backward()
        if not steps_first:
            optimizer.step()
        if order == "forgets last":
            optimizer.zero_grad()
        return outputs, loss

    own = run(work_of(tmp_path / "own", minibatch=step))
    usual = run(work_of(tmp_path / "usual"))
    assert all(torch.allclose(v, usual["network"][n]) for n, v in own["network"].items())


def test_fewer_and_more_steps_than_the_rows_give(tmp_path: Path) -> None:
    plan = work_of(tmp_path / "a").plan("train", 1)
    for steps, rows in ((1, plan.totals()[0]), (6, ROWS + sum(plan.totals()[:2]))):
        seen: list[int] = []

        def count(row: dict[str, Any], seen: list[int] = seen) -> dict[str, Any]:
            seen.append(1)
            return row

        work = work_of(tmp_path / str(steps), steps=steps, transform=count, epochs=1, val_steps=1)
        run_here(work)
        assert sum(seen) == rows + 10, "and the first of two batches to validate by"


def test_callbacks_are_called_with_each_epoch(tmp_path: Path) -> None:
    told: list[Any] = []

    class Callback:
        def on_train_begin(self) -> None:
            told.append("begin")

        def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
            told.append((epoch, logs["train"]["loss"] > 0))

        def on_train_end(self, logs: dict[str, Any]) -> None:
            told.append("end")

    run_here(work_of(tmp_path, epochs=2, callbacks=[Callback(), lambda n, logs: told.append(n)]))
    assert told == ["begin", (0, True), 0, (1, True), 1, "end"]


def test_weights_of_rows_multiply_their_loss(tmp_path: Path) -> None:
    columns = dataclasses.replace(COLUMNS, weight="w", widths={**COLUMNS.widths, "w": 0})
    work = work_of(tmp_path, columns=columns, epochs=1)
    rows = values(ROWS, 0)
    weights = np.arange(ROWS, dtype=np.float32) / 10
    file = write(tmp_path / "weighted", "train", {**rows, "w": weights})
    dataset = dataset_of(str(tmp_path / "weighted"), columns, {"train": (file,)})
    work = dataclasses.replace(work, datasets={"train": dataset}, batch_size=ROWS)
    found = run(work)
    whole = {name: torch.from_numpy(value) for name, value in rows.items()}
    out = outputs(work.model, whole)[:, 0]
    wanted = ((out - whole["y"]).square() * torch.from_numpy(weights)).mean().item()
    assert found["history"][0]["train"]["loss"] == pytest.approx(wanted, rel=1e-5)
    assert "validation" not in found["history"][0]


def test_several_labels_with_a_loss_and_a_weight_each(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(3, 1)
            self.other = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, one: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.one(x), self.other(x)

    columns = dataclasses.replace(COLUMNS, labels=("y", "x"))
    work = work_of(
        tmp_path,
        columns=columns,
        model=Two(),
        losses=[nn.functional.mse_loss, nn.functional.l1_loss],
        loss_weights=[1.0, 0.5],
        metrics=[[nn.functional.l1_loss, nn.functional.mse_loss], [nn.functional.l1_loss]],
        epochs=1,
    )
    whole = {name: torch.from_numpy(value) for name, value in values(ROWS, 0).items()}
    judge.check(work)
    [first] = run(dataclasses.replace(work, batch_size=ROWS))["history"]
    y, x = work.model(whole["x"], whole["one"])
    wanted = nn.functional.mse_loss(y[:, 0], whole["y"]) + nn.functional.l1_loss(x, whole["x"]) / 2
    assert first["train"]["loss"] == pytest.approx(wanted.item(), rel=1e-5)
    assert [sorted(group) for group in first["train"]["all_metrics"]] == [
        ["group_0_x", "group_0_y"],
        ["group_1_x", "group_1_y"],
    ]


def test_losses_that_constructors_make_know_the_model(tmp_path: Path) -> None:
    def constructor(model: nn.Module, **_: Any) -> Any:
        assert isinstance(model, nn.Module)
        return nn.functional.mse_loss

    made = run(work_of(tmp_path / "made", losses=None, constructors=[constructor]))
    assert made["history"] == run(work_of(tmp_path / "given"))["history"]


def test_a_metric_need_not_be_a_number(tmp_path: Path) -> None:
    nan = float("nan")
    work = work_of(tmp_path, metrics=[[lambda output, label: nan]], epochs=1)
    [found] = run(work)["history"]
    assert np.isnan(found["train"]["all_metrics"][0]["group_0_y"])
    logs = json.loads(Path(work.run_dir, "logs", "history.json").read_text())
    assert logs[0]["train"]["all_metrics"] == [{"group_0_y": None}]


def test_a_loss_that_is_not_finite_is_named(tmp_path: Path) -> None:
    work = work_of(tmp_path)
    work = dataclasses.replace(work, optimizer=torch.optim.SGD(work.model.parameters(), lr=1e30))
    with pytest.raises(JobError, match="train loss became"):
        run(work)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"input_shapes": [[-1, 2], [-1, 1]]}, "input_shapes fails"),
        ({"input_shapes": [[-1, 1], [-1, 1]]}, "input_shapes fails"),
        ({"losses": [lambda output: output]}, "loss fails"),
        ({"metrics": [[lambda output, label: output]]}, "metrics fails"),
        ({"transform": lambda row: {"x": row["x"]}}, "transformation_fn fails"),
        ({"label_shapes": [[-1, 9]]}, "label_shapes fails"),
        ({"model": nn.ModuleList()}, "model fails"),
    ],
)
def test_what_cannot_work_fails_before_the_ranks_start(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    optimizer = work_of(tmp_path).optimizer
    with pytest.raises(JobError, match=said):
        judge.check(
            work_of(tmp_path, **changed)
            if "model" not in changed
            else dataclasses.replace(work_of(tmp_path), optimizer=optimizer, **changed)
        )


class TestNumbers:
    def test_any_column_of_numbers(self) -> None:
        import pyarrow as pa

        dense = {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0]}
        sparse = {"type": 0, "size": 2, "indices": [1], "values": [5.0]}
        vectors = pa.array([dense, sparse])
        assert numbers(vectors, 2).tolist() == [[1, 2], [0, 5]]
        assert numbers(pa.array([[1, 2]], pa.list_(pa.int16(), 2)), 2).tolist() == [[1, 2]]
        assert numbers(pa.array([True, False]), 1).tolist() == [[1], [0]]

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ([[1.0], None], "1 nulls"),
            ([[1.0], [None]], "1 nulls"),
            ([[1.0], [1.0, 2.0]], "numbers, not of 1"),
            ([[1.0], [float("nan")]], "not finite"),
            ([["a"], ["b"]], "no numbers"),
        ],
    )
    def test_what_is_none(self, given: Any, said: str) -> None:
        import pyarrow as pa

        with pytest.raises(ValueError, match=said):
            numbers(pa.array(given), 1)


def test_columns_of_files_have_their_own_widths(tmp_path: Path) -> None:
    from trainyard.horovod.estimator.rows import columns_of, found_at

    write(tmp_path, "train", values(4, 0))
    files = found_at(str(tmp_path / "train"), "train")
    assert sum(file.rows for file in files) == 4
    wanted = COLUMNS.with_widths({"x": 0, "one": 0, "y": 0})
    dataset = dataset_of(str(tmp_path / "train"), COLUMNS, {"train": files})
    assert columns_of(dataset, "train", wanted) == COLUMNS
    with pytest.raises(JobError, match="no column 'z'"):
        columns_of(dataset, "train", wanted.with_widths({"z": 0}))
