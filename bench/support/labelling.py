"""A plain PyTorch script that labels images, or scores rows, in a process of its own.

    python labelling.py images FILE MODEL SHARE BATCH     the files that FILE lists
    python labelling.py rows DATASET MODEL SHARE BATCH    the test rows of a dataset

`Pair` starts two. Each waits for a line on its input before each round, and answers with how many
it did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).resolve()
PROCESSES = 2


class Pair:
    """Two processes of one thread each that share the work; they wait while others are measured.

    Args:
        kind: images or rows.
        source: see the module.
        model: a model's URI.
        batch: images or rows at a time.
    """

    def __init__(self, kind: str, source: str, model: str, batch: int) -> None:
        jobs, bench = HERE.parents[2] / "jobs", HERE.parents[1]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{jobs}:{bench}",
            "OMP_NUM_THREADS": "1",
        }
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(HERE), kind, source, model, str(share), str(batch)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for share in range(PROCESSES)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def round(self) -> float:
        """Images or rows a second of both, until the slower one has ended."""
        began = time.monotonic()
        for process in self._processes:
            assert process.stdin is not None
            print(file=process.stdin, flush=True)
        counts = []
        for process in self._processes:
            assert process.stdout is not None
            counts.append(json.loads(process.stdout.readline()))
        return float(sum(counts)) / (time.monotonic() - began)


def main() -> None:
    """Do a round for each line."""
    kind, source, model, share, batch = sys.argv[1:]
    work = {"images": images, "rows": rows}[kind](source, model, int(share), int(batch))
    for _ in sys.stdin:
        print(work(), flush=True)


def images(source: str, uri: str, share: int, batch: int) -> Callable[[], int]:
    """Reads, decodes and labels every second image, as a person would write it."""
    import numpy as np
    import torch
    from PIL import Image

    from trainyard.models import StoredModel, resolve_model

    torch.set_num_threads(1)
    model = StoredModel.read(resolve_model(uri)[0])
    network = model.build()
    paths = Path(source).read_text().splitlines()[share::PROCESSES]

    def pixels(path: str) -> Any:
        with Image.open(path) as image:
            side = 0.875 * min(image.size)
            left, top = (image.width - side) / 2, (image.height - side) / 2
            box = (left, top, left + side, top + side)
            small = image.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC, box=box)
        return (torch.from_numpy(np.array(small)).permute(2, 0, 1).float() - 127) / 128

    def work() -> int:
        labels = []
        with torch.inference_mode():
            for start in range(0, len(paths), batch):
                taken = torch.stack([pixels(path) for path in paths[start : start + batch]])
                best = network(taken).softmax(1).topk(5)
                labels += [[model.meta.classes[i] for i in row] for row in best.indices]
        return len(labels)

    return work


def rows(source: str, uri: str, share: int, batch: int) -> Callable[[], int]:
    """Scores every second row group of the test split."""
    import pyarrow.parquet as pq
    import torch

    from trainyard.dataset import FEATURES, Dataset
    from trainyard.models import StoredModel

    torch.set_num_threads(1)
    model = StoredModel.read(uri)
    network, shape = model.build(), model.meta.input_shape
    dataset = Dataset.read(source)

    def work() -> int:
        count = 0
        with torch.inference_mode():
            for path in dataset.paths("test"):
                file = pq.ParquetFile(path)
                for group in range(share, file.num_row_groups, PROCESSES):
                    found = file.read_row_group(group, columns=[FEATURES]).column(0)
                    flat = found.combine_chunks().flatten().to_numpy()
                    values = torch.tensor(flat).reshape(-1, *shape)
                    for start in range(0, len(values), batch):
                        count += len(network(values[start : start + batch]).softmax(1).argmax(1))
        return count

    return work


if __name__ == "__main__":
    main()
