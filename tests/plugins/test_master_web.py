"""What is read of a standalone master's web API; the documents are a real master's."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plugins.fake_master import idle, recorded, web_ui

from trainyard.errors import JobError
from trainyard_airflow.connection import resolve
from trainyard_airflow.master_web import Application, Driver, Worker, read_master, web_addresses


def test_the_state_of_a_real_master() -> None:
    with web_ui(recorded("running")) as address:
        state = read_master([address])
    assert (state.url, state.status) == ("spark://127.0.0.1:27077", "ALIVE")
    assert state.web == address
    assert state.workers == (
        Worker(name="127.0.0.1:41699", cores=3, cores_free=1, memory=3072, memory_free=1960),
    )
    assert (state.cores, state.cores_free) == (3, 1)
    assert state.drivers == (
        Driver(
            id="driver-20261130005454-0000",
            state="RUNNING",
            cores=1,
            memory=600,
            started=1796000094.856,
        ),
    )
    assert state.applications == (
        Application(
            id="app-20261130005512-0000",
            name="probe app",
            state="RUNNING",
            cores=1,
            started=1796000112.619,
        ),
    )


def test_dead_workers_do_not_count_and_gpus_do() -> None:
    document = idle((4, 4096), (8, 8192))
    document["workers"][1]["state"] = "DEAD"
    document["workers"][0]["resources"] = {"gpu": {"name": "gpu", "addresses": ["0", "1"]}}
    with web_ui(document) as address:
        state = read_master([address])
    assert [(worker.name, worker.gpus) for worker in state.workers] == [("w1:41699", 2)]


def test_the_leading_master_answers_for_all() -> None:
    standby, leads = idle(status="STANDBY"), idle((2, 2048))
    with web_ui(standby) as first, web_ui(leads) as second:
        assert read_master(["http://127.0.0.1:9", first, second]).web == second


def test_without_a_leader_the_one_that_recovers_is_told() -> None:
    with web_ui(idle(status="STANDBY")) as first, web_ui(idle(status="RECOVERING")) as second:
        assert read_master([first, second]).status == "RECOVERING"


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        ("<html>Airflow</html>", 200, "what answers there is no Spark master"),
        ({"workers": 3}, 200, "what answers there is no Spark master"),
        ({}, 403, "HTTP 403"),
    ],
)
def test_what_is_no_master_is_named(answer: Any, code: int, reason: str) -> None:
    with web_ui(answer, code) as address, pytest.raises(JobError, match=reason) as raised:
        read_master([address])
    assert address in raised.value.cause
    assert "web-port" in raised.value.fix


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with web_ui(idle((2, 2048))) as address:
        assert read_master([address]).cores == 2


def test_nothing_there_is_named() -> None:
    with pytest.raises(JobError, match=r"http://127\.0\.0\.1:9: .*refused"):
        read_master(["http://127.0.0.1:9"])


def test_the_addresses_of_a_list_of_masters() -> None:
    assert web_addresses("spark://a:7077,[::1]:7078", port=8081) == [
        "http://a:8081",
        "http://[::1]:8081",
    ]
    with pytest.raises(JobError, match="'local' is no standalone master"):
        web_addresses("local")


@pytest.mark.parametrize(
    ("extra", "web"),
    [
        ("{}", ("http://a:8080", "http://b:8080")),
        ('{"web-port": 18080, "web-scheme": "https"}', ("https://a:18080", "https://b:18080")),
    ],
)
def test_the_connection_says_where_the_web_ui_is(
    monkeypatch: pytest.MonkeyPatch, extra: str, web: tuple[str, ...]
) -> None:
    host = "spark://a:7077,b:7077"
    connection = f'{{"conn_type": "spark", "host": "{host}", "extra": {extra}}}'
    monkeypatch.setenv("AIRFLOW_CONN_IT", connection)
    assert resolve("it", deploy_mode=None, binary=None).web == web


def test_a_port_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_IT",
        '{"conn_type": "spark", "host": "spark://a:7077", "extra": {"web-port": "eighty"}}',
    )
    with pytest.raises(JobError, match="web-port 'eighty'"):
        resolve("it", deploy_mode=None, binary=None)
