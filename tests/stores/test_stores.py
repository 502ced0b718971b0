"""An estimator's store in S3 and in Azure Data Lake Storage, by servers of this machine.

    make test-stores

moto serves S3 and Azurite serves Azure's; no account is needed. The Azure key is the one that every
Azurite has.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from trainyard.horovod import AdlsStore, SparkBackend, Store, TorchEstimator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.log.level", "ERROR").getOrCreate()
    yield session
    session.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(command: list[str], port: int) -> Iterator[str]:
    """A server within the block; gives its address."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not answer"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """Storage options of an S3 with a bucket."""
    import s3fs

    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serving(command, port) as address:
        options = {
            "key": "the-key",
            "secret": "the-s3cr3t-value",
            "client_kwargs": {"endpoint_url": address, "region_name": "eu-west-1"},
        }
        s3fs.S3FileSystem(**options).mkdir("bucket")
        yield options


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Storage options of an Azure account with a container."""
    from adlfs import AzureBlobFileSystem

    port = free_port()
    program = ROOT / ".cache" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    place = str(tmp_path_factory.mktemp("azurite"))
    flags = ["--blobPort", str(port), "--location", place, "--silent"]
    flags += ["--skipApiVersionCheck", "--disableTelemetry"]
    with serving([str(program), *flags], port) as address:
        text = (
            f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY};"
            f"BlobEndpoint={address}/devstoreaccount1;"
        )
        options = {"account_name": "devstoreaccount1", "connection_string": text}
        AzureBlobFileSystem(**options).mkdir("container")
        yield options


def fitted(spark: SparkSession, store: Store, **changed: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 1))
    rows = spark.range(64).selectExpr("array(id / 64, 1 - id / 32) x", "id / 64 y")
    estimator = TorchEstimator(
        backend=SparkBackend(num_proc=2),
        store=store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        loss=nn.functional.mse_loss,
        feature_cols=["x"],
        label_cols=["y"],
        input_shapes=[[-1, 2]],
        partitions_per_process=1,
        validation=0.2,
        random_seed=0,
        verbose=0,
        **{"batch_size": 8, "epochs": 2, **changed},
    )
    return estimator.fit(rows)


def check(spark: SparkSession, store: Store, secret: str) -> None:
    """It fits there, leaves the run and nothing else, resumes, and tells nobody the secret."""
    first = fitted(spark, store, run_id="run")
    assert len(store.get_checkpoints("run")) == 2
    assert not store.exists(f"{store.prefix_path}/intermediate")
    resumed = fitted(spark, store, run_id="run", epochs=3)
    assert resumed.getHistory()[:2] == first.getHistory()
    assert len(resumed.getHistory()) == 3
    assert secret not in repr(store)
    from trainyard import store as objects

    fs, path = objects.filesystem(store.prefix_path)
    assert not [name for name in fs.find(path) if secret.encode() in fs.cat_file(name)]
    arguments = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [given for given in arguments if secret.encode() in given]


def test_s3(spark: SparkSession, s3: dict[str, Any]) -> None:
    check(spark, Store.create("s3://bucket/some/place", storage_options=s3), s3["secret"])


def test_adls(spark: SparkSession, azure: dict[str, Any]) -> None:
    options = {"storage_options": azure, "save_runs": True}
    check(spark, AdlsStore.create("abfs://container/some/place", **options), KEY)
