"""Two training processes without Spark: over Horovod, over torch.distributed, or on their own.

    python -m support.ranks KIND RANK PORT DIRECTORY SETTINGS

Each prints a line of JSON; `measure` starts them and reads it.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RANKS = 2
HERE = Path(__file__).resolve()
KINDS = ("horovod", "gloo", "plain")


def measure(kind: str, dataset: str, **settings: Any) -> list[dict[str, Any]]:
    """Train in two processes at once, and return what each measured.

    Args:
        kind: one of KINDS.
        dataset: directory of the prepared dataset.
        settings: of the training job.
    """
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer()
    port = server.start()
    server.init([])
    with tempfile.TemporaryDirectory() as run_dir:
        given = {"run_dir": run_dir, "dataset": dataset, "model_name": "bench", **settings}
        processes = [
            subprocess.Popen(
                [sys.executable, str(HERE), kind, str(rank), str(port), json.dumps(given)],
                env=environment(rank, port, given),
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        answers = [process.communicate(timeout=600)[0] for process in processes]
    server.stop()
    return [json.loads(answer.splitlines()[-1]) for answer in answers]


def environment(rank: int, port: int, settings: Mapping[str, Any]) -> dict[str, str]:
    """What a rank's process finds in its environment, as the launcher sets it."""
    jobs, bench = HERE.parents[2] / "jobs", HERE.parents[1]
    return {
        **os.environ,
        "PYTHONPATH": f"{jobs}:{bench}",
        "OMP_NUM_THREADS": "1",
        "HOROVOD_HOSTNAME": "here",
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(RANKS),
        "HOROVOD_LOCAL_RANK": str(rank),
        "HOROVOD_LOCAL_SIZE": str(RANKS),
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "1",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CYCLE_TIME": str(settings.get("cycle_time_ms", 1.0)),
    }


def main() -> None:
    """Be one of the two processes."""
    kind, rank, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    from trainyard.specs import TrainHorovod

    spec = TrainHorovod.from_mapping(json.loads(sys.argv[4]))
    with Memory() as memory:
        speeds = {"horovod": horovod, "gloo": gloo, "plain": plain}[kind](spec, rank, port)
    print(json.dumps({"rows_per_second": speeds, "anonymous_kb": memory.peak}), flush=True)
    os._exit(0)  # each library would wait for the other rank in its own way


def horovod(spec: Any, rank: int, port: int) -> list[float]:
    """Rows a second of both ranks, by epoch, in the project's own training."""
    import horovod.torch as hvd

    from trainyard.dataset import Dataset
    from trainyard.horovod.train import train

    hvd.init()
    result = train(spec, Dataset.read(spec.dataset), claim=1)
    return [epoch.rows_per_second for epoch in result.history]


def gloo(spec: Any, rank: int, port: int) -> list[float]:
    """The same, with the collectives of torch.distributed in the place of Horovod's."""
    import torch.distributed as dist
    from torch import Tensor

    from trainyard.dataset import Dataset
    from trainyard.horovod import gradients
    from trainyard.horovod import train as module

    def sum_over_ranks(tensor: Tensor, name: str, timeout: float) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def same(value: Any, root_rank: int) -> Any:
        return value  # every rank starts from the seed

    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    store = Path(spec.run_dir) / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    functions = {"broadcast_object": same, "broadcast_parameters": same}
    stand_in = SimpleNamespace(rank=lambda: rank, size=lambda: RANKS, **functions)
    module.__dict__.update(hvd=stand_in, sum_over_ranks=sum_over_ranks)
    gradients.__dict__.update(sum_over_ranks=sum_over_ranks)
    result = module.train(spec, Dataset.read(spec.dataset), claim=1)
    return [epoch.rows_per_second for epoch in result.history]


def plain(spec: Any, rank: int, port: int) -> list[float]:
    """Rows a second of this process alone, in a plain PyTorch loop over its half of the rows."""
    import torch
    import torch.nn.functional as F  # noqa: N812 - torch's own idiom

    from trainyard.dataset import Dataset
    from trainyard.horovod.loader import Loader, Plan
    from trainyard.horovod.pieces import concatenate
    from trainyard.networks.mnist import ConvNet

    torch.set_num_threads(1)
    dataset = Dataset.read(spec.dataset)
    plan = Plan(rows=dataset.rows("train"), size=RANKS, batch_size=spec.batch_size)
    rows = concatenate(list(Loader(dataset, "train", plan, rank, streaming=True).in_order()))
    network = ConvNet().train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.5)
    optimizer.zero_grad()
    meet(Path(spec.run_dir), rank)
    speeds = []
    for _ in range(spec.epochs):
        began = time.monotonic()
        order = torch.randperm(len(rows))
        for index in torch.split(order, spec.batch_size):
            batch = rows.take(index)
            optimizer.zero_grad()
            scores = network(batch.features.view(-1, *spec.input_shape))
            loss = F.cross_entropy(scores, batch.labels)
            torch.autograd.backward(loss)
            optimizer.step()
        speeds.append(len(rows) / (time.monotonic() - began))
    return speeds


def meet(directory: Path, rank: int) -> None:
    """Wait until both processes are here, so that they compete while they are measured."""
    (directory / f"ready-{rank}").touch()
    while len(list(directory.glob("ready-*"))) < RANKS:
        time.sleep(0.001)


class Memory:
    """The largest anonymous memory of this process, in kB, sampled while the block runs."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.02):
            self.peak = max(self.peak, anonymous_kb())


@functools.cache
def _status() -> Path:
    return Path("/proc/self/status")


def anonymous_kb() -> int:
    """RssAnon of this process."""
    lines = _status().read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


if __name__ == "__main__":
    main()
