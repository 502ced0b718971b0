"""An estimator's store: its paths, what opens it, and what it keeps to itself."""

from __future__ import annotations

import copy
import traceback
from pathlib import Path

import fsspec
import pytest
from estimators import SECRET

from trainyard.errors import JobError, SettingError
from trainyard.horovod import AdlsStore, Store, TorchEstimator


class Broken(fsspec.AbstractFileSystem):  # type: ignore[misc] # it has no types
    """A filesystem that tells its key when it cannot be opened."""

    def __init__(self, key: str) -> None:
        raise RuntimeError(f"wrong key {key}")


class TestStore:
    def test_it_has_the_paths_of_horovods(self, tmp_path: Path) -> None:
        from horovod.spark.common.store import FilesystemStore

        theirs = FilesystemStore(str(tmp_path))
        ours = Store.create(str(tmp_path))
        for ask in ("get_train_data_path", "get_val_data_path", "get_test_data_path"):
            wanted = getattr(theirs, ask)(3).removeprefix("file://")
            assert getattr(ours, ask)(3) == wanted
        assert ours.get_run_path("r") == theirs.get_run_path("r").removeprefix("file://")
        ours.write_text(f"{tmp_path}/a/b.txt", "text")
        assert ours.read(f"{tmp_path}/a/b.txt") == b"text"
        assert ours.exists(f"{tmp_path}/a")
        assert Store.create(tmp_path).prefix_path == ours.prefix_path

    @pytest.mark.parametrize("uri", ["s3://bucket/x", "gs://bucket/x", "abfs://c@a/x"])
    def test_a_filesystem_that_is_not_installed(self, uri: str) -> None:
        with pytest.raises(
            JobError, match=f"Install the fsspec package for {uri.partition(':')[0]}"
        ):
            Store.create(uri)

    def test_a_pickle_of_it_has_no_secret(self, tmp_path: Path) -> None:
        from pyspark import cloudpickle

        store = Store.create(str(tmp_path), storage_options={"sas": SECRET})
        pickled: bytes = cloudpickle.dumps(lambda: store)  # type: ignore[no-untyped-call]
        assert SECRET.encode() not in pickled
        assert copy.deepcopy(store).storage_options == {"sas": SECRET}

    def test_secrets_are_not_in_its_errors(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError) as caught:
            Store.create(str(tmp_path), token=SECRET)
        assert SECRET not in str(caught.value)
        with pytest.raises(SettingError) as misplaced:
            TorchEstimator(storage_options={"sas": SECRET})
        assert SECRET not in str(misplaced.value)
        fsspec.register_implementation("broken", Broken, clobber=True)
        for key in (SECRET, {"inner": [SECRET]}):
            with pytest.raises(JobError, match=r"wrong key .*.hidden.") as opened:
                Store.create("broken://host/x", storage_options={"key": key})
            assert SECRET not in "".join(traceback.format_exception(opened.value))
        with pytest.raises(SettingError, match="it is of the type str") as text:
            Store.create(str(tmp_path), storage_options=SECRET)
        assert SECRET not in str(text.value)
        for name in ("prefix_path", "runs_path"):
            given = {"prefix_path": str(tmp_path), name: f"sftp://me:{SECRET}@host/x"}
            with pytest.raises(SettingError, match="its URI holds a password") as uri:
                Store.create(**given)
            assert SECRET not in str(uri.value)

    def test_synapses_store(self) -> None:
        with pytest.raises(SettingError, match="no URI of Azure"):
            AdlsStore.create("s3://x/y")
        with pytest.raises(
            SettingError, match="linked service exists inside Azure Synapse"
        ) as caught:
            AdlsStore.create(
                "abfs://c@a.dfs.core.windows.net/x", storage_options={"linked_service": SECRET}
            )
        assert SECRET not in str(caught.value)
        with pytest.raises(SettingError, match="Did you mean 'sas_token'"):
            AdlsStore.create("abfs://c/x", storage_options={"sastoken": SECRET})
