"""Faults of the cluster of docker-compose.yaml, which `make compose-up` has started.

After each of them a training ends green, one claim at a time did the work, and nothing is held.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.runs import Run, wait_until

import compose
from services.composed import Composed
from services.dotenv import ComposeError
from services.lifelines import lifelines, problems_of
from trainyard import rundir
from trainyard.layout import safe_name

pytestmark = pytest.mark.timeout(1200)

EPOCHS = 120
SECONDS = 900
CUT = ("airflow-scheduler", "airflow-triggerer")
"""The services of Airflow that speak with the master."""


@pytest.fixture(scope="module")
def composed() -> Composed:
    try:
        return Composed.running()
    except ComposeError as error:
        pytest.skip(f"{error} (`make compose-up`)")


class Training:
    """A run of mnist_horovod, whose training is struck after its third epoch."""

    def __init__(self, composed: Composed, tmp_path: Path) -> None:
        self.composed = composed
        self.tmp_path = tmp_path
        self.run = Run.trigger(composed.api, "mnist_horovod", epochs=EPOCHS, ranks=2)
        wait_until(lambda: self.state() == "deferred", SECONDS)
        place = f"/store/{self.run.dag_id}/{safe_name(self.run.run_id)}/train"
        (generation,) = composed.exec("airflow-scheduler", "ls", place).split()
        self.run_dir = f"{place}/{generation}"
        wait_until(lambda: len(self.epochs()) >= 3, SECONDS)

    def state(self) -> str:
        return str(self.run.tasks()["train"]["state"])

    def copy(self) -> Path:
        return self.composed.copy_out(self.run_dir, self.tmp_path / str(time.monotonic_ns()))

    def epochs(self) -> list[int]:
        """The epochs that were told, in the order in which they were trained."""
        events = rundir.read_events(str(self.copy()), {})
        return [event["step"] for event in events if event["kind"] == "metric"]

    def check_end(self) -> int:
        """It ends green, and nothing is held; how many claims there were."""
        assert self.run.wait(SECONDS) == "success"
        lines = lifelines(self.copy())
        assert problems_of(lines) == []
        wait_until(lambda: self.composed.leavings() == {}, 60)
        return len(lines)

    def resumed(self) -> list[int]:
        """After which epochs it was taken up again."""
        notes = [e["text"] for e in rundir.read_events(str(self.copy()), {}) if e["kind"] == "note"]
        found = [re.fullmatch(r"training resumes after epoch (\d+)", note) for note in notes]
        return [int(match[1]) for match in found if match]


@pytest.fixture
def training(composed: Composed, tmp_path: Path) -> Iterator[Training]:
    made = Training(composed, tmp_path)
    yield made
    for service in composed.containers.services():
        if service != "airflow-init":
            composed.wait_until_healthy(service)


@contextmanager
def stopped(composed: Composed, service: str) -> Iterator[None]:
    """A service is stopped, and starts again however the body ends."""
    container = composed.containers.container(service)
    try:
        compose.docker("stop", "--time=10", container)
        yield
    finally:
        compose.docker("start", container)


@contextmanager
def cut_off(composed: Composed, service: str, network: str) -> Iterator[None]:
    """A service is cut off from a network, and joins it again however the body ends."""
    container = composed.containers.container(service)
    network = f"{composed.containers.project}_{network}"
    try:
        compose.docker("network", "disconnect", network, container)
        yield
    finally:
        if f'"{network}"' not in composed.inspect(service, "json .NetworkSettings.Networks"):
            compose.docker("network", "connect", f"--alias={service}", network, container)


def test_a_worker_is_stopped(training: Training, composed: Composed) -> None:
    with stopped(composed, "spark-worker-1"):
        time.sleep(5)
    assert training.check_end() in (1, 2), "it had the driver, or executors alone"
    (after,) = training.resumed()
    assert after >= 2
    assert sorted(set(training.epochs())) == list(range(1, EPOCHS + 1))


def test_the_master_is_restarted(training: Training, composed: Composed) -> None:
    compose.docker("restart", "--time=3", composed.containers.container("spark-master"))
    assert training.check_end() == 1
    assert training.epochs() == list(range(1, EPOCHS + 1))


def test_postgresql_is_gone_for_half_a_minute(training: Training, composed: Composed) -> None:
    with stopped(composed, "postgres"):
        time.sleep(30)
    composed.wait_until_healthy("airflow-api-server")
    assert training.check_end() == 1
    assert training.epochs() == list(range(1, EPOCHS + 1))


def test_the_network_to_the_master_is_cut_for_a_minute(
    training: Training, composed: Composed
) -> None:
    scheduler, triggerer = (cut_off(composed, service, "control") for service in CUT)
    with scheduler, triggerer:
        time.sleep(60)
    assert training.check_end() == 1
    assert training.epochs() == list(range(1, EPOCHS + 1))
