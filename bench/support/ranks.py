"""Two training processes without Spark: over Horovod, over torch.distributed, or on their own.

    python -m support.ranks KIND RANK SETTINGS

`Pair` starts them. Each waits for a line on its input before every epoch and answers with a line of
JSON after it, so that pairs of several kinds can take turns: what slows the machine for a while
then slows all of them.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Self

RANKS = 2
HERE = Path(__file__).resolve()
KINDS = ("horovod", "gloo", "plain")


class Pair:
    """Two processes that train an epoch when they are told to, and are stopped in between.

    Args:
        kind: one of KINDS.
        dataset: directory of the prepared dataset.
        settings: of the training job.
    """

    def __init__(self, kind: str, dataset: str, **settings: Any) -> None:
        from horovod.runner.http.http_server import RendezvousServer

        self.kind = kind
        self._directory = tempfile.TemporaryDirectory()
        self._server = RendezvousServer()
        port = self._server.start()
        self._server.init([])
        given = {"run_dir": self._directory.name, "dataset": dataset, "model_name": "bench"}
        given |= settings
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(HERE), kind, str(rank), json.dumps(given)],
                env=environment(rank, port, given),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._server.stop()
        self._directory.cleanup()

    def epoch(self) -> tuple[float, int]:
        """Train an epoch; return rows a second of both, and the larger anonymous memory in kB."""
        self._signal(signal.SIGCONT)
        for process in self._processes:
            print(file=_pipe(process.stdin), flush=True)
        answers = [json.loads(_pipe(process.stdout).readline()) for process in self._processes]
        self._signal(signal.SIGSTOP)
        speeds = [answer["rows_per_second"] for answer in answers]
        memory = max(answer["anonymous_kb"] for answer in answers)
        return (sum(speeds) if self.kind == "plain" else speeds[0]), memory

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


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
    kind, rank = sys.argv[1], int(sys.argv[2])
    from trainyard.specs import TrainHorovod

    spec = TrainHorovod.from_mapping(json.loads(sys.argv[3]))
    with Memory() as memory:
        {"horovod": horovod, "gloo": gloo, "plain": plain}[kind](spec, rank, Turns(memory))


class Turns:
    """One line in before each epoch, one out after it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def wait(self) -> None:
        """Wait for the turn."""
        if not sys.stdin.readline():
            os._exit(0)

    def answer(self, rows_per_second: float) -> None:
        """Say how the epoch went."""
        measured = {"rows_per_second": rows_per_second, "anonymous_kb": self._memory.peak}
        print(json.dumps(measured), flush=True)


def horovod(spec: Any, rank: int, turns: Turns) -> None:
    """The project's own training, whose rows a second are those of both ranks."""
    from trainyard.horovod import collective

    collective.init()
    _train(spec, turns)


def _train(spec: Any, turns: Turns) -> None:
    from trainyard.dataset import Dataset
    from trainyard.horovod import train as module

    one_epoch = module._Training._epoch

    def epoch(training: Any, number: int) -> Any:
        turns.wait()
        done = one_epoch(training, number)
        turns.answer(done.rows_per_second)
        return done

    vars(module)["_Training"]._epoch = epoch
    module.train(spec, Dataset.read(spec.dataset), claim=1)


def gloo(spec: Any, rank: int, turns: Turns) -> None:
    """The same, with the collectives of torch.distributed in the place of Horovod's."""
    import torch.distributed as dist
    from torch import Tensor

    from trainyard.horovod import gradients
    from trainyard.horovod import train as module

    def sum_over_ranks(tensor: Tensor, name: str, timeout: float) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def same(value: Any, name: str, timeout: float) -> Any:
        return value  # every rank starts from the seed, and the network has no buffers

    def state(data: bytes, name: str, timeout: float) -> bytes:
        shared = [data]
        dist.broadcast_object_list(shared, src=0)
        return shared[0]

    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    store = Path(spec.run_dir) / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    stand_in = SimpleNamespace(rank=lambda: rank, size=lambda: RANKS)
    collectives = {"sum_over_ranks": sum_over_ranks, "broadcast": same, "broadcast_bytes": state}
    module.__dict__.update(hvd=stand_in, **collectives)
    gradients.__dict__.update(sum_over_ranks=sum_over_ranks)
    _train(spec, turns)


def plain(spec: Any, rank: int, turns: Turns) -> None:
    """A plain PyTorch loop over this process's half of the rows, which are all in memory."""
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
    while True:
        turns.wait()
        began = time.monotonic()
        order = torch.randperm(len(rows))
        for index in torch.split(order, spec.batch_size):
            batch = rows.take(index)
            optimizer.zero_grad()
            scores = network(batch.features.view(-1, *spec.input_shape))
            loss = F.cross_entropy(scores, batch.labels)
            torch.autograd.backward(loss)
            optimizer.step()
        turns.answer(len(rows) / (time.monotonic() - began))


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
