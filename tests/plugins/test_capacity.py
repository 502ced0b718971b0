"""Whether driver and executors of a submission fit a cluster, ever and now."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plugins.fake_master import idle, recorded

from trainyard.errors import JobError, TransientError
from trainyard.specs import TrainHorovod, TrainXGBoost
from trainyard_airflow.capacity import Demand, check_fits, demand, why_wait
from trainyard_airflow.master_web import MasterState, parse_state

CONF = {"spark.executor.cores": "1", "spark.driver.memory": "600m", "spark.executor.memory": "512m"}


def state(document: dict[str, Any]) -> MasterState:
    return parse_state(document, "http://m:8080")


def wanted(conf: dict[str, str] | None = None, *, driver_on_cluster: bool = True) -> Demand:
    named = {f"spark.{name}": value for name, value in (conf or {}).items()}
    return demand(CONF | named, training(2), driver_on_cluster=driver_on_cluster)


def training(ranks: int) -> TrainHorovod:
    return TrainHorovod(run_dir="/r", dataset="d", model_name="m", ranks=ranks)


def test_the_configuration_says_what_is_asked() -> None:
    conf = {
        "spark.driver.cores": "2",
        "spark.driver.memory": "2g",
        "spark.task.cpus": "2",
        "spark.executor.cores": "4",
        "spark.executor.memory": "1536",
        "spark.cores.max": "8",
        "spark.executor.resource.gpu.amount": "1",
    }
    assert demand(conf, training(4), driver_on_cluster=True) == Demand(
        job="train_horovod",
        slots=4,
        slots_setting="ranks",
        driver_cores=2,
        driver_memory=2048,
        task_cores=2,
        executor_cores=4,
        executor_memory=1536,
        most_cores=8,
        gpus=1,
    )
    plain = demand({}, training(2), driver_on_cluster=False)
    assert (plain.driver_cores, plain.executor_cores, plain.executor_memory) == (0, None, 1024)


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"cores.max": "1"}, r"spark\.cores\.max is 1, which gives 1 tasks.*to 2 or more"),
        ({"task.cpus": "2"}, r"spark\.executor\.cores is 1, and spark\.task\.cpus is 2"),
        ({"executor.memory": "lots"}, "'lots': it is no amount of memory"),
        ({"driver.cores": "1.5"}, "'1.5': it is no whole number"),
        ({"driver.cores": "0"}, "'0': it is no whole number of 1 or more"),
        ({"task.cpus": "0"}, "'0': it is no whole number of 1 or more"),
        ({"cores.max": "0"}, "'0': it is no whole number of 1 or more"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(conf: dict[str, str], message: str) -> None:
    with pytest.raises(JobError, match=message):
        wanted(conf)


@pytest.mark.parametrize(
    ("workers", "conf"),
    [
        ([(3, 3072)], {}),
        ([(1, 1024), (2, 2048)], {}),
        ([(2, 1112), (1, 512)], {"executor.cores": "1"}),
        ([(4, 4096)], {"task.cpus": "1", "executor.cores": "2"}),
    ],
)
def test_what_fits(workers: list[tuple[int, int]], conf: dict[str, str]) -> None:
    check_fits(wanted(conf), state(idle(*workers)))
    assert why_wait(wanted(conf), state(idle(*workers))) is None


@pytest.mark.parametrize(
    ("workers", "conf", "message"),
    [
        ([(2, 4096)], {}, r"1 \+ 2 = 3 cores, .*offers 2 cores .*they run 1 tasks.*ranks to 1"),
        (
            [(3, 1200)],
            {},
            r"they run 1 tasks at once.*Set ranks to 1 or less, or lower",
        ),
        ([(3, 512)], {}, r"no worker has room for the driver.*spark\.driver\.memory to 512m"),
        ([(4, 4096)], {"executor.memory": "8g"}, r"spark\.executor\.memory .*to 4096m"),
        # It fits with the driver on the second worker, but Spark may choose the first one.
        (
            [(2, 4096), (1, 4096)],
            {"executor.cores": "2"},
            "the driver on w1:.* they run 0",
        ),
        ([], {}, "no worker is alive.*Start a worker"),
        ([(9, 9999)], {"executor.resource.gpu.amount": "1"}, "no worker has 1 GPUs"),
    ],
)
def test_what_never_fits_is_refused_with_the_arithmetic(
    workers: list[tuple[int, int]], conf: dict[str, str], message: str
) -> None:
    with pytest.raises(TransientError, match=message):  # more workers may come
        check_fits(wanted(conf), state(idle(*workers)))


def test_the_fix_names_the_setting_of_the_job() -> None:
    boosted = TrainXGBoost(run_dir="/r", dataset="d", model_name="m", num_workers=2)
    with pytest.raises(JobError, match="Set num_workers to 1 or less"):
        check_fits(demand(CONF, boosted, driver_on_cluster=True), state(idle((2, 4096))))
    with pytest.raises(JobError, match="or num_workers to 1 or less"):
        demand(CONF | {"spark.cores.max": "1"}, boosted, driver_on_cluster=True)


def test_a_driver_elsewhere_takes_no_core() -> None:
    check_fits(wanted(driver_on_cluster=False), state(idle((2, 1024))))


def test_waiting_drivers_are_not_joined_by_another() -> None:
    """The recorded cluster has three drivers on three cores, and starved until some were killed."""
    starved = state(recorded("starved"))
    check_fits(wanted(), starved)
    reason = why_wait(wanted(), starved)
    assert reason == "driver-20261130005455-0003 waits for cores or memory and goes first"


def test_a_driver_whose_application_is_not_there_yet_is_waited_for() -> None:
    document = recorded("starved")
    document["activedrivers"] = document["activedrivers"][1:2]
    document["workers"][0] |= {"coresfree": 3, "memoryfree": 3072}
    young = state(document)
    began = young.drivers[0].started
    assert "driver-20261130005454-0000 starts" in str(why_wait(wanted(), young, now=began + 2))
    assert why_wait(wanted(), young, now=began + 3600) is None, "it has none"
    document["activeapps"] = recorded("running")["activeapps"]
    assert why_wait(wanted(), state(document), now=began + 20) is None


def test_what_runs_leaves_too_little() -> None:
    running = state(recorded("running"))
    reason = why_wait(wanted(), running, now=running.applications[0].started + 100)
    assert reason is not None
    assert "free are 1 cores on 1 workers (127.0.0.1:41699 1 cores 1960 MiB)" in reason
    assert "they run 0 tasks at once" in reason


def test_a_waiting_application_and_a_master_that_does_not_lead_are_waited_for() -> None:
    document = idle((9, 9999))
    document["activeapps"] = [recorded("running")["activeapps"][0] | {"state": "WAITING"}]
    assert "app-20261130005512-0000 waits" in str(why_wait(wanted(), state(document)))
    recovering = state(idle((9, 9999), status="RECOVERING"))
    assert "is RECOVERING" in str(why_wait(wanted(), recovering))
