"""Trainings on a cluster, below an Airflow: whatever is killed, they end green and leave nothing.

One claim does the work at a time; where driver or ranks were killed, training goes on where it was.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.runs import SECONDS, Run, dag_ids, wait_until

from services import victims
from services.lifelines import lifelines, problems_of
from services.testbed import Testbed, wait_for
from services.victims import Victim
from trainyard import rundir

pytestmark = pytest.mark.timeout(600)

EPOCHS = 40
STRUCK_AFTER = 3
"""Epochs: there is a checkpoint by then, and most of the training is to come."""

AWAY_SECONDS = 3.0


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """An Airflow and a cluster; what a test kills, it starts again."""
    with Testbed(tmp_path_factory.mktemp("faults"), Path(__file__).parent / "dags") as testbed:
        wait_until(lambda: len(dag_ids(testbed.api)) == 4, 120)
        yield testbed


@pytest.fixture(scope="module")
def dataset(testbed: Testbed) -> str:
    run = Run.trigger(testbed.api, "prepare_in_triggerer")
    assert run.wait() == "success"
    return str(run.xcom("job")["outputs"]["dataset"])


class Training:
    """A training of EPOCHS epochs, as its run directory tells it."""

    def __init__(self, testbed: Testbed, dataset: str, place: str, epochs: int = EPOCHS) -> None:
        self.testbed = testbed
        self.epochs = epochs
        self.run = Run.trigger(testbed.api, f"train_in_{place}", dataset=dataset, epochs=epochs)

    @property
    def run_dir(self) -> Path:
        """Its run directory, which is one as long as nobody clears it."""
        found = self.testbed.run_dirs(self.run.dag_id, self.run.run_id, "job")
        assert len(found) == 1
        return found[0]

    def told(self) -> list[int]:
        """The epochs, in the order in which they were trained."""
        if not self.testbed.run_dirs(self.run.dag_id, self.run.run_id, "job"):
            return []
        events = rundir.read_events(str(self.run_dir), {})
        return [event["step"] for event in events if event["kind"] == "metric"]

    def resumed(self) -> list[int]:
        """After which epochs it was taken up again."""
        notes = [
            e["text"] for e in rundir.read_events(str(self.run_dir), {}) if e["kind"] == "note"
        ]
        found = [re.fullmatch(r"training resumes after epoch (\d+)", note) for note in notes]
        return [int(match[1]) for match in found if match]

    def tickets(self) -> list[Path]:
        """The tickets of its submissions so far."""
        directories = self.testbed.run_dirs(self.run.dag_id, self.run.run_id, "job")
        return [ticket for place in directories for ticket in place.glob("tickets/*.ticket")]

    def wait_for_epoch(self, number: int) -> None:
        """Wait until an epoch is told."""
        wait_until(lambda: number in self.told(), SECONDS)

    def check_end(self, *, claims: int) -> None:
        """It ends green; one claim did the work after the other, and nothing is left."""
        assert self.run.wait() == "success"
        lines = lifelines(self.run_dir)
        assert problems_of(lines) == []
        assert len(lines) == claims
        wait_until(self.testbed.is_idle, 30)

    def check_undisturbed(self) -> None:
        """Each epoch was trained once."""
        assert self.told() == list(range(1, self.epochs + 1))

    def check_resumed(self) -> None:
        """It was taken up once, with one epoch trained again at most, whose checkpoint was not."""
        told, (after,) = self.told(), self.resumed()
        assert after >= STRUCK_AFTER - 1
        before = len(told) - (self.epochs - after)
        assert told[before:] == list(range(after + 1, self.epochs + 1))
        assert told[:before] in (list(range(1, after + 1)), list(range(1, after + 2)))


def worker_of_the_driver(testbed: Testbed) -> int:
    (jvm,) = testbed.driver_jvms()
    return next(n for n in (1, 2) if jvm in testbed.cluster.session(f"worker{n}"))


@pytest.mark.parametrize("kind", ["JVM", "Python"])
def test_a_driver_is_replaced_and_goes_on(testbed: Testbed, dataset: str, kind: str) -> None:
    training = Training(testbed, dataset, "triggerer")
    training.wait_for_epoch(STRUCK_AFTER)
    victim = victims.DRIVER_JVM if kind == "JVM" else victims.DRIVER_PYTHON
    assert victim.strike(testbed, AWAY_SECONDS)
    training.check_end(claims=2)
    training.check_resumed()


def test_an_executor_is_replaced_below_its_driver(testbed: Testbed, dataset: str) -> None:
    training = Training(testbed, dataset, "triggerer")
    training.wait_for_epoch(STRUCK_AFTER)
    assert victims.EXECUTOR.strike(testbed, AWAY_SECONDS) is False
    training.check_end(claims=1)
    training.check_resumed()


@pytest.mark.parametrize("alone", [True, False], ids=["process", "machine"])
def test_a_worker_takes_its_driver_along(testbed: Testbed, dataset: str, alone: bool) -> None:
    training = Training(testbed, dataset, "triggerer")
    training.wait_for_epoch(STRUCK_AFTER)
    worker = victims.spark_worker(worker_of_the_driver(testbed), alone=alone)
    assert worker.strike(testbed, AWAY_SECONDS)
    training.check_end(claims=2)
    training.check_resumed()


def test_a_worker_that_has_executors_alone(testbed: Testbed, dataset: str) -> None:
    training = Training(testbed, dataset, "triggerer")
    training.wait_for_epoch(STRUCK_AFTER)
    other = 3 - worker_of_the_driver(testbed)
    assert victims.spark_worker(other).strike(testbed, AWAY_SECONDS) is False
    training.check_end(claims=1)
    training.check_resumed()


@pytest.mark.parametrize(
    ("victim", "place"),
    [
        pytest.param(victims.MASTER, "triggerer", id="master"),
        pytest.param(victims.TRIGGERER, "triggerer", id="triggerer"),
        pytest.param(victims.SCHEDULER, "triggerer", id="scheduler"),
        pytest.param(victims.AIRFLOW_WORKER, "worker", id="Airflow worker"),
    ],
)
def test_a_training_does_not_notice(
    testbed: Testbed, dataset: str, victim: Victim, place: str
) -> None:
    training = Training(testbed, dataset, place)
    training.wait_for_epoch(STRUCK_AFTER)
    assert victim.strike(testbed, AWAY_SECONDS) is False
    training.check_end(claims=1)
    training.check_undisturbed()


def test_an_airflow_worker_that_is_submitting(testbed: Testbed, dataset: str) -> None:
    training = Training(testbed, dataset, "triggerer")
    # The ticket is issued just before the request, and the driver's id is stored after it.
    wait_for(training.tickets, SECONDS, every=0.01)
    assert victims.AIRFLOW_WORKER.strike(testbed, AWAY_SECONDS) is False
    training.check_end(claims=1)
    training.check_undisturbed()
    assert training.run.tasks()["job"]["try_number"] == 2, "it was killed before it waited"


def test_of_two_triggerers_one_is_paused(testbed: Testbed, dataset: str) -> None:
    training = Training(testbed, dataset, "triggerer", epochs=250)
    training.wait_for_epoch(1)
    wait_until(lambda: training.run.tasks()["job"]["state"] == "deferred", SECONDS)
    paused = testbed.service("triggerer")
    other = testbed.start_service("triggerer")
    assert other
    wait_until(lambda: len(testbed.service("triggerer")) > 1, 60)
    for process in paused:
        process.signal(signal.SIGSTOP)
    try:
        time.sleep(25)
    finally:
        for process in paused:
            process.signal(signal.SIGCONT)
    assert len(training.told()) < training.epochs, "a driver is there to be killed"
    training.check_end(claims=1)
    training.check_undisturbed()
    logs = f"logs/*/run_id={training.run.run_id}/task_id=job/*.trigger.*.log"
    assert len(list(testbed.place.airflow_home.glob(logs))) == 2, "both have waited"
    victims.kill(paused)
