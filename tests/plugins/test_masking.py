"""What is hidden in a command and in a log line, and what is not."""

from __future__ import annotations

import shlex

import pytest

from trainyard_airflow.masking import mask, mask_command, secrets_in


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        ("--token abc --epochs 3", "--token ****** --epochs 3"),
        ("--api-key=z --key=id", "--api-key=****** --key=id"),
        (
            "--conf spark.hadoop.fs.s3a.access.key=AK",
            "--conf spark.hadoop.fs.s3a.access.key=******",
        ),
        ("--conf spark.executorEnv.API_TOKEN=t", "--conf spark.executorEnv.API_TOKEN=******"),
        ("--conf spark.datasource.pwd=t", "--conf spark.datasource.pwd=******"),
        ("--conf azure.connection-string=t", "--conf azure.connection-string=******"),
        ("--conf spark.ssl.keyPassword=t", "--conf spark.ssl.keyPassword=******"),
        (
            "--conf fs.azure.account.key.x.dfs.core.windows.net=k",
            "--conf fs.azure.account.key.x.dfs.core.windows.net=******",
        ),
        ("--source=jdbc:postgresql://u:pw@h/db", "--source=jdbc:postgresql://u:******@h/db"),
        (
            "--source=jdbc:x://h/db?password=pw&ssl=1",
            "--source=jdbc:x://h/db?password=******&ssl=1",
        ),
        ("--secret-scope prod --tokenizer bpe", "--secret-scope prod --tokenizer bpe"),
        ("--master spark://h:7077 --name a@b", "--master spark://h:7077 --name a@b"),
    ],
)
def test_a_command_is_logged_without_its_secrets(command: str, masked: str) -> None:
    assert mask_command(shlex.split(command)) == masked


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("opening postgresql://me:pw@h/db", "opening postgresql://me:******@h/db"),
        ("x://me:p@ss@h/db", "x://me:******@h/db"),
        ("AWS_SECRET_ACCESS_KEY='a b' is set", "AWS_SECRET_ACCESS_KEY=****** is set"),
        ("read 512 tokens in 3 s, loss=0.1", "read 512 tokens in 3 s, loss=0.1"),
        ("at 12:30 user@host said http://h:80/x", "at 12:30 user@host said http://h:80/x"),
    ],
)
def test_a_log_line_is_kept_but_for_its_secrets(line: str, masked: str) -> None:
    assert mask(line) == masked


def test_the_hidden_values_are_known() -> None:
    assert secrets_in("a://u:one@h?token=two&x=y password='three'") == ["one", "two", "three"]


def test_a_long_line_takes_no_long_time() -> None:
    for line in ("://" + "a:" * 200_000, "x" * 400_000, "token" * 100_000, "a=" * 200_000):
        assert mask(line) == line
