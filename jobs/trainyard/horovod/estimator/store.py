"""Where an estimator keeps its runs and the rows that its ranks read: any place fsspec knows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Self

from trainyard import store
from trainyard.access import Access
from trainyard.errors import PASSWORD, JobError, SettingError, nearest
from trainyard.layout import join, safe_name

_OTHER_NAMES = {
    "linked_service": "Give account_name with sas_token, account_key, or client_id, client_secret "
    "and tenant_id: a linked service exists inside Azure Synapse alone.",
    "connection": "Give account_name with sas_token or account_key.",
}
_ADLS = (
    "account_name",
    "account_key",
    "account_host",
    "anon",
    "client_id",
    "client_secret",
    "connection_string",
    "credential",
    "location_mode",
    "sas_token",
    "tenant_id",
)


class Store:
    """A place for runs and intermediate rows. Make one by `create`.

    It prints, and is saved with an estimator, without its storage options.

    Args:
        prefix_path: URI or path below which everything lies.
        train_path: where `fit_on_parquet` finds rows to train on; by default a name below it.
        val_path: where it finds rows to validate by; likewise.
        test_path: where the user's own rows to test lie; likewise.
        runs_path: where runs lie; likewise.
        save_runs: whether checkpoints stay after training.
        storage_options: what fsspec wants to open the place: keys, tokens, an endpoint.
        checkpoint_filename: a checkpoint's name is its epoch's and digest's: leave it out.

    Raises:
        JobError: no filesystem is installed for the URI's scheme, or it cannot be opened so.
    """

    def __init__(
        self,
        prefix_path: str | os.PathLike[str],
        *,
        train_path: str | os.PathLike[str] | None = None,
        val_path: str | os.PathLike[str] | None = None,
        test_path: str | os.PathLike[str] | None = None,
        runs_path: str | os.PathLike[str] | None = None,
        save_runs: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        checkpoint_filename: str | None = None,
    ) -> None:
        if checkpoint_filename is not None:
            raise SettingError(
                "checkpoint_filename",
                checkpoint_filename,
                "checkpoints are named by their epoch and digest",
                "Leave it out; get_checkpoint_path names their directory.",
            )
        self.prefix_path = _full(prefix_path)
        self._paths = {
            "train": _full(train_path or join(self.prefix_path, "intermediate_train_data")),
            "val": _full(val_path or join(self.prefix_path, "intermediate_val_data")),
            "test": _full(test_path or join(self.prefix_path, "intermediate_test_data")),
            "runs": _full(runs_path or join(self.prefix_path, "runs")),
        }
        self._saves_runs = save_runs
        if not isinstance(storage_options, Mapping | None):
            raise SettingError(
                "storage_options",
                "(hidden)",
                f"it is of the type {type(storage_options).__name__}",
                "Give a dictionary of fsspec's options.",
            )
        self._options = dict(storage_options or {})
        self.open()
        self._check()

    @classmethod
    def create(cls, prefix_path: str | os.PathLike[str], **options: Any) -> Self:
        """A store at a URI (file, s3, gs, hdfs, abfs, ...) or path; see the class for the options.

        Raises:
            SettingError: there is no such option.
        """
        known = ("train_path", "val_path", "test_path", "runs_path", "save_runs", "storage_options")
        for name, value in options.items():
            if name not in (*known, "checkpoint_filename"):
                hidden = "(hidden)" if value is not None else value
                raise SettingError(name, hidden, "a store has no such option", nearest(name, known))
        return cls(prefix_path, **options)

    def __repr__(self) -> str:
        hidden = ", storage_options=(hidden)" if self._options else ""
        return f"{type(self).__name__}({self.prefix_path!r}{hidden})"

    def __getstate__(self) -> dict[str, Any]:
        """Without the storage options: a pickle may be kept, and ranks get them otherwise."""
        return {**self.__dict__, "_options": {}}

    def __deepcopy__(self, memo: object) -> Self:
        return self  # it never changes

    @property
    def storage_options(self) -> dict[str, Any]:
        """What fsspec wants to open the place."""
        return dict(self._options)

    @property
    def access(self) -> Access | None:
        """What tasks need to open the place."""
        places = (self.prefix_path, *self._paths.values())
        return Access(places=places, options=self._options) if self._options else None

    def open(self) -> None:
        """Let this process open the store's paths."""
        if self.access is not None:
            self.access.grant()

    def _check(self) -> None:
        try:
            store.filesystem(self.prefix_path)
        except JobError:
            raise
        except Exception as error:
            raise JobError(
                f"the store {self.prefix_path!r} cannot be opened: "
                f"{type(error).__name__}: {self._without_secrets(str(error))}.",
                "Check the URI, storage_options, and the packages of its filesystem (for hdfs:// "
                "also libhdfs and Java's CLASSPATH).",
            ) from None

    def _without_secrets(self, text: str) -> str:
        for value in _texts(self._options):
            if len(value) > 3:
                text = text.replace(value, "(hidden)")
        return text

    def get_train_data_path(self, idx: object = None) -> str:
        """Where rows to train on lie."""
        return self._data("train", idx)

    def get_val_data_path(self, idx: object = None) -> str:
        """Where rows to validate by lie."""
        return self._data("val", idx)

    def get_test_data_path(self, idx: object = None) -> str:
        """Where rows to test lie."""
        return self._data("test", idx)

    def _data(self, split: str, idx: object) -> str:
        return self._paths[split] if idx is None else f"{self._paths[split]}.{idx}"

    def saving_runs(self) -> bool:
        """Whether checkpoints stay after training."""
        return self._saves_runs

    def get_runs_path(self) -> str:
        """Where runs lie."""
        return self._paths["runs"]

    def get_run_path(self, run_id: str) -> str:
        """The directory of a run, whatever characters its name has."""
        return join(self.get_runs_path(), safe_name(run_id))

    def get_checkpoint_path(self, run_id: str) -> str | None:
        """The directory of a run's checkpoints, where they stay."""
        return join(self.get_run_path(run_id), "checkpoints") if self._saves_runs else None

    def get_checkpoints(self, run_id: str, suffix: str = ".pt") -> list[str]:
        """The paths of a run's checkpoints, in order."""
        path = self.get_checkpoint_path(run_id)
        names = store.list_names(path) if path else []
        return [join(str(path), name) for name in names if name.endswith(suffix)]

    def get_logs_path(self, run_id: str) -> str | None:
        """The directory of a run's `history.json`, where it stays."""
        return join(self.get_run_path(run_id), self.get_logs_subdir()) if self._saves_runs else None

    def get_logs_subdir(self) -> str:
        """The name of that directory in a run's."""
        return "logs"

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        self.open()
        return store.exists(path)

    def read(self, path: str) -> bytes:
        """A whole object."""
        self.open()
        return store.read_bytes(path)

    def write_text(self, path: str, text: str) -> None:
        """Write a text as an object."""
        self.open()
        store.write_bytes(path, text.encode())


class AdlsStore(Store):
    """A store in Azure Data Lake Storage Gen2, as Azure Synapse's library had it."""

    @classmethod
    def create(cls, prefix_path: str | os.PathLike[str], **options: Any) -> Self:
        """A store at `abfs[s]://CONTAINER[@ACCOUNT.dfs.core.windows.net]/PATH`.

        `storage_options` names the account and one way in: `sas_token`, `account_key`, or
        `client_id`, `client_secret` and `tenant_id`; see adlfs.

        Raises:
            SettingError: the URI is another one, or an option is not adlfs's.
        """
        if not str(prefix_path).startswith(("abfs://", "abfss://", "az://")):
            raise SettingError(
                "prefix_path",
                prefix_path,
                "it is no URI of Azure Data Lake Storage",
                "Write it as abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.",
            )
        for name in options.get("storage_options") or {}:
            if name not in _ADLS:
                fix = _OTHER_NAMES.get(name) or nearest(name, _ADLS)
                problem = "Azure's filesystem takes no such option"
                raise SettingError(f"storage_options[{name!r}]", "(hidden)", problem, fix)
        return super().create(prefix_path, **options)


def _texts(value: Any) -> Iterator[str]:
    """The texts in storage options, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _full(given: str | os.PathLike[str]) -> str:
    path = os.fspath(given)
    if PASSWORD.search(path):
        raise SettingError(
            "prefix_path",
            "(hidden)",
            "its URI holds a password, which would be printed and saved",
            "Give it by storage_options.",
        )
    return store.real(path) if store.is_local(path) else path.rstrip("/")
