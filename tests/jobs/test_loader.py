from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from digit_trainings import few_digits
from hypothesis import given, settings
from hypothesis import strategies as st
from made_datasets import write_dataset

from trainyard.dataset import FEATURES, KEY, LABEL, Dataset
from trainyard.errors import JobError, SettingError
from trainyard.horovod.loader import Loader, Plan, check_rows
from trainyard.horovod.pieces import Rows
from trainyard.pieces import pieces

LAYOUTS = {
    "one row group": [[1003]],
    "a file a row group": [[300], [300], [300], [103]],
    "uneven": [[1, 500], [2], [499, 1]],
    "with empty ones": [[0], [1000, 0, 3], []],
}


def numbered(rows: int, width: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose features are their number, so that each can be told from the others."""
    numbers = np.arange(rows, dtype=np.float32)
    return np.repeat(numbers[:, None], width, axis=1), np.arange(rows, dtype=np.int64) % 5


def dataset_of(directory: Path, layout: Sequence[Sequence[int]]) -> Dataset:
    rows = sum(map(sum, layout))
    return write_dataset(directory, {"train": numbered(rows)}, classes=5, files={"train": layout})


def loaders(dataset: Dataset, ranks: int, batch_size: int, *, streaming: bool) -> list[Loader]:
    plan = Plan(rows=dataset.rows("train"), size=ranks, batch_size=batch_size)
    return [Loader(dataset, "train", plan, r, streaming=streaming) for r in range(ranks)]


def numbers(batches: Iterable[Rows]) -> list[int]:
    return [int(n) for batch in batches for n in batch.features[:, 0]]


@given(
    rows=st.integers(1, 5000),
    size=st.integers(1, 9),
    batch_size=st.integers(1, 300),
)
def test_plan_gives_equal_steps_and_every_row_once(rows: int, size: int, batch_size: int) -> None:
    plan = Plan(rows=rows, size=size, batch_size=batch_size)
    shares = [sum(plan.batches(rank)) for rank in range(size)]
    assert plan.steps == math.ceil(math.ceil(rows / size) / batch_size)
    assert all(len(plan.batches(rank)) == plan.steps for rank in range(size))
    assert sum(shares) == rows
    assert max(shares) - min(shares) <= 1
    assert [plan.bounds(r)[1] for r in range(size - 1)] == [
        plan.bounds(r)[0] for r in range(1, size)
    ]
    every = list(itertools.chain(*(plan.batches(rank) for rank in range(size))))
    assert max(every) <= batch_size
    assert max(every) - min(every) <= 2
    assert plan.totals() == [
        sum(step) for step in zip(*map(plan.batches, range(size)), strict=True)
    ]


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "in memory"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_ranks_read_every_row_once(
    tmp_path: Path, layout: list[list[int]], ranks: int, streaming: bool
) -> None:
    dataset = dataset_of(tmp_path, layout)
    made = loaders(dataset, ranks, 16, streaming=streaming)
    in_order = [numbers(loader.in_order()) for loader in made]
    shuffled = [numbers(loader.shuffled(seed=1, epoch=1)) for loader in made]
    assert list(itertools.chain(*in_order)) == list(range(1003))
    assert [sorted(rank) for rank in shuffled] == in_order


@settings(max_examples=20, deadline=None)
@given(
    layout=st.lists(st.lists(st.integers(0, 40), max_size=4), min_size=1, max_size=4).filter(
        lambda layout: sum(map(sum, layout)) > 0
    ),
    ranks=st.integers(1, 5),
    batch_size=st.integers(1, 20),
)
def test_any_layout_is_read_whole(
    tmp_path_factory: pytest.TempPathFactory,
    layout: list[list[int]],
    ranks: int,
    batch_size: int,
) -> None:
    dataset = dataset_of(tmp_path_factory.mktemp("layout"), layout)
    made = loaders(dataset, ranks, batch_size, streaming=True)
    read = itertools.chain(*(numbers(loader.shuffled(seed=0, epoch=3)) for loader in made))
    assert sorted(read) == list(range(sum(map(sum, layout))))


def test_labels_and_types_stay_with_their_rows(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, [[100, 100]])
    [loader] = loaders(dataset, 1, 32, streaming=True)
    for batch in loader.shuffled(seed=0, epoch=1):
        assert batch.features.dtype == torch.float32
        assert batch.labels.dtype == torch.int64
        assert torch.equal(batch.features[:, 0].long() % 5, batch.labels)


def test_order_comes_from_seed_epoch_and_rank(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, [[64] * 10])
    first, second = loaders(dataset, 2, 16, streaming=True)
    order = numbers(first.shuffled(seed=1, epoch=1))
    assert numbers(first.shuffled(seed=1, epoch=1)) == order
    assert numbers(first.shuffled(seed=1, epoch=2)) != order
    assert numbers(first.shuffled(seed=2, epoch=1)) != order
    assert [n - 320 for n in numbers(second.shuffled(seed=1, epoch=1))] != order
    assert order != sorted(order)


def test_streaming_mixes_row_groups(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, [[64] * 8])
    [loader] = loaders(dataset, 1, 64, streaming=True)
    groups = {int(n) // 64 for n in next(loader.shuffled(seed=0, epoch=1)).features[:, 0]}
    assert len(groups) == 4


def test_a_row_group_on_a_boundary_is_shared(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, [[10], [10]])
    first, second = pieces(dataset, "train", 0, 15), pieces(dataset, "train", 15, 20)
    assert [(piece.start, piece.rows) for piece in first] == [(0, 10), (0, 5)]
    assert [(piece.start, piece.rows) for piece in second] == [(5, 5)]


@pytest.mark.parametrize("classes", [0, 5])
def test_a_rank_without_rows_of_a_split_has_empty_batches(tmp_path: Path, classes: int) -> None:
    features, labels = numbered(1)
    rows = {"train": (features, labels.astype(np.float64) if not classes else labels)}
    dataset = write_dataset(tmp_path, rows, classes=classes)
    batches = [list(each.in_order()) for each in loaders(dataset, 2, 8, streaming=True)]
    assert [[len(batch) for batch in of_rank] for of_rank in batches] == [[0], [1]]


def test_refuses_fewer_rows_than_a_step() -> None:
    check_rows(256, ranks=2, batch_size=128)
    with pytest.raises(SettingError) as caught:
        check_rows(255, ranks=2, batch_size=128)
    assert "255 rows" in caught.value.cause
    assert "2 ranks x 128 rows = 256" in caught.value.cause
    assert "batch_size of 127 or less" in caught.value.fix
    with pytest.raises(SettingError, match="fewer ranks"):
        check_rows(1, ranks=2, batch_size=1)


def rewrite(dataset: Dataset, features: pa.Array, labels: Sequence[int | None]) -> None:
    table = {KEY: ["k"] * len(labels), FEATURES: features, LABEL: pa.array(labels, pa.int64())}
    pq.write_table(pa.table(table), dataset.paths("train")[0])


LISTS = pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("features", "labels", "problem"),
    [
        (pa.array([[1.0] * 3] * 3, LISTS), [0, 1, 2], "another number of rows"),
        (
            pa.array([[1.0] * 3] * 4, pa.list_(pa.float64())),
            [0, 1, 2, 3],
            "double>, not list",
        ),
        (pa.array([[1.0] * 2] * 2 + [[1.0] * 4] * 2, LISTS), [0, 1, 2, 3], "not 3 wide"),
        (pa.array([[1.0] * 3] * 3 + [None], LISTS), [0, 1, 2, 3], "nulls"),
        (pa.array([[1.0] * 3] * 3 + [[1.0, None, 1.0]], LISTS), [0, 1, 2, 3], "nulls"),
        (pa.array([[1.0] * 3] * 4, LISTS), [0, 1, 2, 5], "outside 0 to 4"),
        (pa.array([[1.0] * 3] * 4, LISTS), [0, 1, 2, -1], "outside 0 to 4"),
        (pa.array([[1.0] * 3] * 4, LISTS), [0, 1, 2, None], "nulls"),
    ],
)
def test_refuses_files_that_changed(
    tmp_path: Path, features: pa.Array, labels: list[int | None], problem: str
) -> None:
    dataset = dataset_of(tmp_path, [[4]])
    rewrite(dataset, features, labels)
    [loader] = loaders(dataset, 1, 4, streaming=True)
    with pytest.raises(JobError) as caught:
        list(loader.in_order())
    assert problem in caught.value.cause
    assert "part-00000.parquet" in caught.value.cause


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_refuses_files_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    dataset = dataset_of(tmp_path, [[4]])
    path = Path(dataset.paths("train")[0])
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-50])
    [loader] = loaders(dataset, 1, 4, streaming=True)
    with pytest.raises(JobError, match=r"does not match the dataset.json"):
        list(loader.in_order())


def test_reads_any_filesystem(tmp_path: Path) -> None:
    import fsspec

    dataset = dataset_of(tmp_path, [[10], [10]])
    fsspec.filesystem("memory").put(str(tmp_path), "/loader", recursive=True)
    remote = Dataset.read("memory://loader")
    [loader] = loaders(remote, 1, 4, streaming=True)
    assert numbers(loader.in_order()) == list(range(dataset.rows("train")))


@pytest.mark.parametrize("path", ["../other/part.parquet", "/etc/part.parquet"])
def test_a_file_outside_the_dataset_is_refused(tmp_path: Path, path: str) -> None:
    made = few_digits(tmp_path / "data")
    described = tmp_path / "data" / "dataset.json"
    text = described.read_text()
    described.write_text(text.replace(made.splits["train"][0].path, path))
    with pytest.raises(JobError, match="is not below the dataset's directory"):
        Dataset.read(made.directory)
