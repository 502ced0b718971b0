"""Small tables for tests of the prepare job, and runs of it on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_runs import run_in

from prepare import prepare_dataset
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.sparkerrors import unwrapped
from trainyard.specs import SPLITS, Prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 300


def table(rows: int = ROWS, **columns: Any) -> pa.Table:
    numbers = np.arange(rows)
    plain = {
        "id": numbers,
        "a": numbers * 0.5,
        "b": (numbers % 7).astype(np.int32),
        "y": numbers % 3,
    }
    return pa.table({**plain, **columns})


def gappy_flights(rows: int = 400) -> pa.Table:
    """A label that a number with gaps and a category decide on; columns with difficult names."""
    rng = np.random.default_rng(0)
    delay = rng.normal(size=rows)
    carrier = rng.choice(["AA", "B6", "UA", "WN"], rows)
    noise = rng.normal(size=rows)
    late = (delay + 2 * (carrier == "B6") - (carrier == "UA") + noise / 2 > 0.4).astype(int)
    gaps = rng.random(rows)
    return table(
        rows,
        id=np.arange(rows),
        **{"dep.delay [min]": pa.array(np.where(gaps < 0.2, np.nan, delay))},
        features=pa.array(
            [None if g > 0.9 else float(v) for g, v in zip(gaps, noise, strict=True)]
        ),
        carrier=pa.array([None if g > 0.95 else c for g, c in zip(gaps, carrier, strict=True)]),
        late=late,
        minutes=delay * 10 + noise,
        start=rng.normal(size=rows),
        validates=rng.random(rows) < 0.2,
        part=rng.choice(["train", "validation", "test"], rows, p=[0.6, 0.2, 0.2]),
    )


GAPPY: dict[str, Any] = {
    "features": ("dep.delay [min]", "features", "carrier"),
    "categorical": ("carrier",),
    "label": "late",
    "imputation": "keep",
    "encoding": "index",
    "split_by": "column",
    "split_column": "part",
}
"""How `gappy_flights` is prepared."""


def spec_for(source: Path | str, run_dir: Path, **settings: Any) -> Prepare:
    plain = {"features": ("a", "b"), "label": "y", "key": "id", "row_group_rows": 64}
    return Prepare(run_dir=str(run_dir), source=str(source), **{**plain, **settings})


def prepared(
    spark: SparkSession, tmp_path: Path, source: pa.Table | Path | str, **settings: Any
) -> tuple[Dataset, dict[str, Any]]:
    if isinstance(source, pa.Table):
        tmp_path.mkdir(exist_ok=True)
        path = tmp_path / "source.parquet"
        pq.write_table(source, path)
        source = path
    spec = spec_for(source, tmp_path / "run", **settings)
    with unwrapped():
        result = prepare_dataset(spark, spec, run_in(tmp_path / "run"))
    return Dataset.read(result["outputs"]["dataset"]), result


def written_in(directory: Path, source: pa.Table) -> Path:
    directory.mkdir()
    pq.write_table(source, directory / "source.parquet")
    return directory / "source.parquet"


def rows_of(dataset: Dataset, split: str) -> pa.Table:
    nothing = pq.read_schema(dataset.paths("train")[0]).empty_table()
    return pa.concat_tables([nothing, *(pq.read_table(path) for path in dataset.paths(split))])


def all_rows(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Every row by its key, with the name of its split."""
    return {
        row["key"]: {"split": split, **row}
        for split in SPLITS
        if dataset.splits[split]
        for row in rows_of(dataset, split).to_pylist()
    }


def keys_of(dataset: Dataset) -> dict[str, list[str]]:
    return {split: rows_of(dataset, split)["key"].to_pylist() for split in SPLITS}


def refusal(spark: SparkSession, tmp_path: Path, source: Any, **settings: Any) -> str:
    with pytest.raises(JobError) as caught:
        prepared(spark, tmp_path, source, **settings)
    assert not (tmp_path / "run" / "data" / "dataset.json").exists()
    return str(caught.value)
