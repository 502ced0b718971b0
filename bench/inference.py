#!/usr/bin/env python3
"""The job `predict` against what people write instead: photographs, digits, memory, resuming.

    python bench/inference.py [images] [rows] [memory] [parts] [killed] [--images N] [--repeats N]

Two slots of one thread each, against two processes of one thread. All are warm: each has done its
work once, uncounted. Bars: images >= 0.9 of a plain PyTorch script; rows of MNIST >= 0.9 of plain
PyTorch, >= 1.1 of `predict_batch_udf`, >= 5 times Horovod's `TorchModel.transform`; a worker's
anonymous memory with 8 times the images <= 1.15; committing in parts <= 1.05 of the time of one
part a slot; images labelled by a run that was killed at about half and by its rerun <= 1.1 of
those of one run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

os.environ.setdefault("OMP_NUM_THREADS", "1")

from support import mnist_inference
from support.data import repeated_digits, write_dataset
from support.labelling import Pair
from support.local import local_spark
from support.photographs import make_photographs
from support.tables import bar, machine, ratio, show

import predict
from trainyard import scorable
from trainyard.dataset import Dataset
from trainyard.images.reading import image_batches
from trainyard.job import Run
from trainyard.models import ModelMeta, StoredModel, save_model
from trainyard.rundir import EventWriter
from trainyard.session import spark_session
from trainyard.specs import Predict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODEL = "package:efficientnet_lite0"
ROWS = 60_000
BATCH = 16
"""Of the plain script; ours chooses by memory."""


def main() -> int:
    """Measure side by side; answer 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", metavar="images|rows|memory|parts|killed")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    measures: dict[str, Callable[[SparkSession, Path, int, int], bool]] = {
        "images": images,
        "rows": rows,
        "memory": memory,
        "parts": parts,
        "killed": killed,
    }
    if unknown := set(given.what) - set(measures):
        parser.error(f"there is no {', '.join(unknown)}")
    print(f"two slots of one thread; {machine()}")
    local_spark(2)
    holds = True
    with tempfile.TemporaryDirectory() as directory, spark_session("bench") as spark:
        for what in given.what or measures:
            holds &= measures[what](spark, Path(directory), given.images, given.repeats)
    return 0 if holds else 1


def images(spark: SparkSession, directory: Path, count: int, repeats: int) -> bool:
    """Images a second, against a plain script."""
    paths = make_photographs(directory / "photographs", count)
    (directory / "paths").write_text("\n".join(paths))
    speeds: dict[str, list[float]] = {"plain": [], "ours": []}
    with Pair("images", str(directory / "paths"), MODEL, BATCH) as pair:
        for each in range(repeats + 1):
            speeds["plain"].append(pair.round())
            speeds["ours"].append(count / timed(lambda: label(spark, directory / "photographs")))
            if not each:
                speeds = {name: [] for name in speeds}
    show(f"{count} images", "images/s", speeds)
    return bar("ours / plain", ratio("images", speeds["ours"], speeds["plain"]), least=0.9)


def rows(spark: SparkSession, directory: Path, _: int, repeats: int) -> bool:
    """Rows of MNIST a second, against a plain script and two ways on Spark."""
    dataset, model = digits_and_network(directory)
    network = StoredModel.read(model).build()
    slow = ROWS // 20
    ways: dict[str, Callable[[], float]] = {
        "udf": lambda: ROWS / timed(lambda: mnist_inference.by_udf(spark, dataset, network, 512)),
        "TorchModel": lambda: (
            slow / timed(lambda: mnist_inference.by_horovod(spark, dataset, network, slow))
        ),
        "ours": lambda: ROWS / timed(lambda: run(spark, dataset.directory, model, split="test")),
    }
    with Pair("rows", dataset.directory, model, 512) as pair:
        ways["plain"] = pair.round
        for way in ways.values():
            way()
        speeds: dict[str, list[float]] = {name: [] for name in ways}
        for _each in range(repeats):
            for name, way in ways.items():
                speeds[name].append(way())
    show(f"{ROWS} digits", "rows/s", speeds)
    holds = True
    for name, least in (("plain", 0.9), ("udf", 1.1), ("TorchModel", 5.0)):
        holds &= bar(f"ours / {name}", ratio(name, speeds["ours"], speeds[name]), least=least)
    return holds


def memory(spark: SparkSession, directory: Path, count: int, _: int) -> bool:
    """The larger worker's anonymous memory, by the number of images."""
    few, many = count // 4, count * 2
    make_photographs(directory / "few", few)
    make_photographs(directory / "many", many)
    label(spark, directory / "few")
    peaks = {}
    for name, number in (("few", few), ("many", many)):
        with Watch() as watch:
            label(spark, directory / name)
        peaks[f"{number} images"] = [max(watch.peaks.values()) / 1000]
    show("peak of a worker", "MB", peaks)
    small, large = peaks.values()
    return bar("memory", ratio("8 times the images", large, small), most=1.15)


def parts(spark: SparkSession, directory: Path, count: int, repeats: int) -> bool:
    """The time in parts that are committed one by one, against one part a slot."""
    folder = directory / "parts"
    make_photographs(folder, count)
    times: dict[str, list[float]] = {"parts of 64": [], "one a slot": []}
    sizes = dict(zip(times, (predict._PART_IMAGES, -(-count // 2)), strict=True))
    try:
        for each in range(repeats + 1):
            for name, size in sizes.items():
                predict._PART_IMAGES = size
                times[name].append(timed(lambda: label(spark, folder)))
            if not each:
                times = {name: [] for name in times}
    finally:
        predict._PART_IMAGES = sizes["parts of 64"]
    show(f"{count} images", "s", times)
    return bar("in parts", ratio("parts / one a slot", *times.values()), most=1.05)


def killed(spark: SparkSession, directory: Path, count: int, _: int) -> bool:
    """Images labelled in all, where the workers are killed at about half."""
    folder, counts = directory / "killed", directory / "labelled"
    make_photographs(folder, count)
    counts.mkdir()
    run_dir = tempfile.mkdtemp(prefix="bench-")
    vars(scorable)["image_batches"] = counted(image_batches, counts)
    try:
        killer = threading.Thread(target=kill_at_half, args=(Path(run_dir), count))
        killer.start()
        with suppress(Exception):
            label(spark, folder, run_dir)
        killer.join()
        label(spark, folder, run_dir)
    finally:
        vars(scorable)["image_batches"] = image_batches
    labelled = sum(path.stat().st_size for path in counts.iterdir())
    print(f"\n{count} images, killed at half: {labelled} labelled in all")
    return bar("work", [labelled / count], most=1.1)


def kill_at_half(run_dir: Path, count: int) -> None:
    """Kill every worker once half of the parts are committed."""
    half = count // predict._PART_IMAGES // 2
    while len(list(run_dir.glob("commits/*/0*.json"))) < half:
        time.sleep(0.05)
    for worker in workers():
        with suppress(psutil.NoSuchProcess):
            worker.send_signal(signal.SIGKILL)


def counted(batches: Any, directory: Path) -> Any:
    """Image batches that leave a byte for each image that was given to the network."""

    def count(*arguments: Any) -> Iterator[Any]:
        for batch in batches(*arguments):
            with (directory / str(os.getpid())).open("ab") as file:
                file.write(b"." * len(batch.values))
            yield batch

    return count


class Watch:
    """Reads the anonymous memory of Spark's Python workers while the block runs.

    Attributes:
        peaks: the most that each had, in kB, by process.
    """

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            for worker in workers():
                with suppress(psutil.Error):
                    used = worker.memory_info()
                    anonymous = (used.rss - used.shared) // 1000
                    self.peaks[worker.pid] = max(anonymous, self.peaks.get(worker.pid, 0))


def workers() -> list[psutil.Process]:
    """Spark's Python processes."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "pyspark.daemon" in process.cmdline():
                found.append(process)
    return found


def digits_and_network(directory: Path) -> tuple[Dataset, str]:
    """Digits as test rows, and the network of the tutorials without training."""
    from trainyard.networks.mnist import ConvNet

    trained = repeated_digits(directory / "digits", 3500)
    import pyarrow.parquet as pq

    table = pq.read_table(trained.paths("train")[0])
    features = table["features"].combine_chunks().flatten().to_numpy().reshape(-1, 784)
    import numpy as np

    order = np.arange(ROWS) % len(features)
    labels = table["label"].to_numpy()
    split = features[order], labels[order]
    dataset = write_dataset(directory / "test", {"test": split}, classes=10, row_group_rows=2048)
    meta = ModelMeta(
        network="trainyard.networks.mnist:ConvNet",
        input_shape=(1, 28, 28),
        features=dataset.features,
        key=dataset.key,
        label=dataset.label,
        classes=dataset.classes,
        width=dataset.width,
        dataset_fingerprint=dataset.fingerprint,
        settings={},
        versions={},
    )
    save_model(str(directory / "network"), ConvNet().state_dict(), meta)
    return dataset, str(directory / "network")


def label(spark: SparkSession, folder: Path, run_dir: str | None = None) -> None:
    """Label a folder's images."""
    run(spark, str(folder), MODEL, run_dir, top_k=5)


def run(
    spark: SparkSession, source: str, model: str, run_dir: str | None = None, **settings: Any
) -> None:
    """The job `predict`, in a run directory of its own unless one is given."""
    directory = run_dir or tempfile.mkdtemp(prefix="bench-")
    spec = Predict(run_dir=directory, source=source, model=model, **settings)
    events = EventWriter(directory, claim=1, writer="driver")
    predict.predict_rows(spark, spec, Run(directory=directory, claim=1, events=events))


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
