"""Forms of a Spark connection: the master that each means, or why it means none."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from trainyard.errors import JobError
from trainyard_airflow.connection import RestServer, SparkMaster, resolve, rest_server

SPARK = '{"conn_type": "spark", "host": "spark://h:7077", "extra": %s}'


def resolved(
    monkeypatch: pytest.MonkeyPatch, form: str, deploy_mode: str | None = None
) -> SparkMaster:
    monkeypatch.setenv("AIRFLOW_CONN_IT", form)
    return resolve("it", deploy_mode=deploy_mode, binary=None)


@pytest.mark.parametrize(
    ("form", "master", "slots"),
    [
        ('{"conn_type": "spark", "host": "local"}', "local", 1),
        ('{"conn_type": "spark", "host": "local[2]"}', "local[2]", 2),
        ('{"conn_type": "spark", "host": "local[4,2]"}', "local[4,2]", 4),
        ('{"conn_type": "spark", "host": "local[*]"}', "local[*]", os.cpu_count()),
        ('{"conn_type": "spark", "host": "local-cluster[2,3,1024]"}', "local-cluster[2,3,1024]", 6),
        ("spark://local%5B2%5D", "local[2]", 2),
        ("spark://master:7077", "spark://master:7077", None),
        ('{"conn_type": "spark", "host": "master", "port": 7077}', "spark://master:7077", None),
        ('{"conn_type": "spark", "host": "spark://a:7077,b:7077"}', "spark://a:7077,b:7077", None),
        ('{"conn_type": "spark", "host": "yarn"}', "yarn", None),
    ],
)
def test_a_good_form_means_what_the_provider_makes_of_it(
    monkeypatch: pytest.MonkeyPatch, form: str, master: str, slots: int | None
) -> None:
    found = resolved(monkeypatch, form)
    assert (found.url, found.deploy_mode, found.binary) == (master, "client", "spark-submit")
    assert found.slots == slots
    assert SparkSubmitHook(conn_id="it")._connection["master"] == master


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("spark://local[2]", r"cannot be read from AIRFLOW_CONN_IT.*JSON"),
        ("local[2]", r"Use connection type spark"),
        ('{"conn_type": "spark", "host": "local%5B2%5D"}', r"as they are: local\[2\]"),
        ('{"conn_type": "spark", "host": "local[0]"}', "which is none"),
        ('{"conn_type": "spark", "host": "local[2]", "port": 7077}', "a local master has none"),
        ('{"conn_type": "spark", "host": "spark://h:7077", "port": 7077}', "remove the port 7077"),
        ('{"conn_type": "spark", "host": "spark://h"}', "which is none"),
        ('{"conn_type": "spark", "host": "master"}', "which is none"),
        ("http://h:8080", "That is a web page"),
        ('{"conn_type": "spark", "host": "http://h:8080"}', "That is a web page"),
        ("yarn://yarn", r'"host": "yarn"'),
        ("spark://", "which is none"),
        ('{"conn_type": "spark", "host": "k8s://https://h:6443"}', "no Kubernetes provider"),
        (
            '{"conn_type": "spark", "host": "yarn", "extra": {"deploy_mode": "client"}}',
            "extra 'deploy_mode', which the provider ignores.*'deploy-mode'",
        ),
        (
            '{"conn_type": "spark", "host": "yarn", "extra": {"spark-home": "/opt/spark"}}',
            "spark-submit on PATH",
        ),
        (
            '{"conn_type": "spark", "host": "yarn", "extra": {"spark-binary": "/x/spark-submit"}}',
            "spark-binary '/x/spark-submit'.*on PATH",
        ),
        (
            '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "clutser"}}',
            "Did you mean 'cluster'",
        ),
        (
            '{"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "cluster"}}',
            "'local\\[2\\]': a local master has no cluster",
        ),
        (
            (
                '{"conn_type": "spark", "host": "spark://h:7077",'
                ' "extra": {"deploy-mode": "cluster", "rest-port": "6066x"}}'
            ),
            "rest-port '6066x'.*spark.master.rest.port",
        ),
        (
            (
                '{"conn_type": "spark", "host": "spark://h:7077",'
                ' "extra": {"deploy-mode": "cluster", "rest-scheme": "ftp"}}'
            ),
            "rest-scheme 'ftp'.*http or https",
        ),
        ('{"conn_type": "spark"', "neither a connection in JSON"),
        ('{"conn_type": "spark", "host": "h", "port": 99999}', "h:99999: its port must"),
        ('{"conn_type": "spark", "host": "spark://h:0"}', "h:0: its port must be"),
        ('{"conn_type": "spark", "host": "spark://[:::]:7077"}', r"\[:::\]:7077: At most one"),
        ('{"conn_type": "spark", "host": "spark://a:7077, b:7077"}', "without blanks"),
        ('{"conn_type": "spark", "host": "spark://u:p@h:7077"}', "a token is the connection's"),
        (SPARK % '"not json"', "the extra of connection 'it' is no JSON object"),
        (SPARK % "[1]", "the extra of connection 'it' is no JSON object"),
        (SPARK % '{"deploy-mod": "cluster"}', "'deploy-mod'.*Did you mean 'deploy-mode'"),
        (SPARK % '{"deploy-mode": ["cluster"]}', r"is \['cluster'\]"),
    ],
)
def test_a_form_that_would_go_wrong_is_refused_with_its_fix(
    monkeypatch: pytest.MonkeyPatch, form: str, message: str
) -> None:
    with pytest.raises(JobError, match=message):
        resolved(monkeypatch, form)


@pytest.mark.parametrize(
    ("fields", "urls"),
    [
        ({"host": "spark://h:7077"}, ("http://h:6066",)),
        ({"host": "h", "port": 7077}, ("http://h:6066",)),
        ({"host": "spark://a:7077,b:7078"}, ("http://a:6066", "http://b:6066")),
        ({"host": "spark://[::1]:7077", "rest-port": 7000}, ("http://[::1]:7000",)),
        ({"host": "spark://h:7077", "rest-scheme": "https"}, ("https://h:6066",)),
    ],
)
def test_cluster_mode_has_a_rest_server_for_each_master(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], urls: tuple[str, ...]
) -> None:
    extra = {k: v for k, v in fields.items() if k.startswith("rest")} | {"deploy-mode": "cluster"}
    of_host = {k: v for k, v in fields.items() if not k.startswith("rest")}
    form = {"conn_type": "spark", "password": "a-token", "extra": extra, **of_host}
    found = resolved(monkeypatch, json.dumps(form))
    assert found.rest == RestServer(urls=urls, token="a-token")
    assert "a-token" not in repr(found)
    assert resolved(monkeypatch, json.dumps(form), deploy_mode="client").rest is None


def test_an_unknown_connection_is_not_yarn() -> None:
    with pytest.raises(JobError, match=r"'sp_typo' is not defined.*AIRFLOW_CONN_SP_TYPO"):
        resolve("sp_typo", deploy_mode=None, binary=None)


def test_the_operators_deploy_mode_goes_before_the_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = '{"conn_type": "spark", "host": "local", "extra": {"deploy-mode": "cluster"}}'
    assert resolved(monkeypatch, form, deploy_mode="client").deploy_mode == "client"


def test_the_operators_binary_may_be_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_IT", '{"conn_type": "spark", "host": "local"}')
    arguments: dict[str, Any] = {"deploy_mode": None, "binary": "/opt/spark/bin/spark-submit"}
    assert resolve("it", **arguments).binary == "/opt/spark/bin/spark-submit"


@pytest.mark.parametrize("token", ["a-secret\nsecond", "a-secret b", "a-secrét"])
def test_a_token_that_no_request_can_carry_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    form = {"conn_type": "spark", "host": "spark://h:7077", "password": token}
    with pytest.raises(JobError, match="is no token") as raised:
        resolved(monkeypatch, json.dumps(form), deploy_mode="cluster")
    assert "a-sec" not in str(raised.value)


def test_a_password_in_a_host_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    form = '{"conn_type": "spark", "host": "spark://me:open-sesame@h:7077"}'
    with pytest.raises(JobError, match="which is none") as raised:
        resolved(monkeypatch, form)
    assert "open-sesame" not in str(raised.value)


def test_a_connection_that_means_another_master_by_now_has_no_rest_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_IT", '{"conn_type": "spark", "host": "local[2]"}')
    with pytest.raises(JobError, match=r"'local\[2\]', which has no REST server"):
        rest_server("it")
