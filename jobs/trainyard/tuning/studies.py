"""Where studies are kept: a file in a study's directory, or a database for all of them.

The file is written whole after each change that counts, from a copy on the driver's own disk: the
same code serves a disk and an object store, and no SQLite file is shared over a network.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from trainyard import store
from trainyard.barrier.failures import first_line
from trainyard.claims import Claim
from trainyard.errors import PASSWORD, JobError, TransientError, shown
from trainyard.layout import STUDY, join
from trainyard.specs import Tune
from trainyard.tuning.engines import Goal, most_steps
from trainyard.tuning.study import Study

STUDIES = "TRAINYARD_STUDIES"
"""Environment variable: the database of all studies, such as postgresql://user:password@host/name.
Without it each study is a file in its own directory."""

_ABOUT = "trainyard.about"

_DATABASE_ERRORS = (SQLAlchemyError, StorageInternalError)


@contextmanager
def open_study(spec: Tune, goal: Goal, fingerprint: str) -> Iterator[Study]:
    """The study of a search, made where there is none; it is this driver's alone in the block.

    Args:
        spec: the search.
        goal: what trials are compared by.
        fingerprint: of the dataset.

    Raises:
        TransientError: its database does not answer, or another driver works on it.
        JobError: it is of another search.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directory = spec.study or spec.run_dir
    with _held(spec), _storage(directory) as (storage, save):
        study = optuna.create_study(
            storage=storage,
            study_name=hashlib.sha256(store.real(directory).encode()).hexdigest()[:32],
            direction="maximize" if goal.grows else "minimize",
            pruner=_pruner(spec),
            load_if_exists=True,
        )
        about = json.loads(json.dumps(_about(spec, goal, fingerprint)))
        known = study.user_attrs.get(_ABOUT)
        if known is None:
            study.set_user_attr(_ABOUT, about)
        else:
            _check_same(directory, known, about)
        yield Study(study, spec, spec.dimensions, save)
        save()


@contextmanager
def _held(spec: Tune) -> Iterator[None]:
    """Keep other drivers from a study that several runs go on with; a run's own is claimed."""
    if spec.study is None or store.real(spec.study) == store.real(spec.run_dir):
        yield
        return
    claim = Claim.take(spec.study)
    try:
        yield
    finally:
        claim.release()


@contextmanager
def _storage(directory: str) -> Iterator[tuple[optuna.storages.RDBStorage, Callable[[], None]]]:
    """The storage of a study, and what makes its present state last."""
    if url := os.environ.get(STUDIES):
        with _answering():
            yield _database(url), lambda: None
        return
    kept = join(directory, STUDY)
    with tempfile.TemporaryDirectory(prefix="trainyard-study-") as own:
        path = Path(own) / STUDY
        if store.exists(kept):
            path.write_bytes(_whole(kept))
        with _readable(kept, (*_DATABASE_ERRORS, RuntimeError)):
            storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        # What lasts is the copy, and not this file.
        event.listen(storage.engine, "connect", _without_waiting)

        def save() -> None:
            connection = sqlite3.connect(path)
            try:
                data = connection.serialize()
            finally:
                connection.close()
            with store.writing(f"the study {kept!r}"):
                store.write_bytes(kept, data)

        try:
            with _readable(kept):
                yield storage, save
        finally:
            storage.engine.dispose()


def _whole(kept: str) -> bytes:
    """A study's file: SQLite takes an empty one as new, but none was written without tables."""
    data = store.read_bytes(kept)
    if not data:
        raise _unreadable(kept, "it is empty")
    return data


def _database(url: str) -> optuna.storages.RDBStorage:
    """The storage in a database; no error shows what may be part of its password."""
    # SQLAlchemy takes another driver by itself than the one that is installed.
    url = url.replace("postgresql://", "postgresql+psycopg2://", 1)
    try:
        address = make_url(url)
        address.get_dialect()
    except (ArgumentError, ValueError):
        raise _no_address("it cannot be read") from None
    if "@" in (address.host or ""):
        raise _no_address("there is an @ more than its parts have")
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except ImportError as error:
        name = address.drivername
        raise _no_address(f"no driver for {name} is installed") from error
    except RuntimeError as error:
        raise JobError(
            f"the database of studies is another version's: {_line(error)}.",
            f"Name an empty database in {STUDIES}, or use the Optuna that made it.",
        ) from error


def _no_address(problem: str) -> JobError:
    return JobError(
        f"{STUDIES} is no address of a database: {problem}.",
        "Write postgresql://USER:PASSWORD@HOST/NAME, with /, : and @ in the password as %2F, %3A "
        "and %40.",
    )


@contextmanager
def _readable(kept: str, kinds: tuple[type[Exception], ...] = _DATABASE_ERRORS) -> Iterator[None]:
    """Turn what a study's file raises into a `JobError`."""
    try:
        yield
    except kinds as error:
        raise _unreadable(kept, _line(error)) from error


def _unreadable(kept: str, problem: str) -> JobError:
    return JobError(
        f"{kept!r} is no study that can be worked on: {problem}.",
        "Restore it, remove it to begin anew, or use another directory.",
    )


def _without_waiting(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


@contextmanager
def _answering() -> Iterator[None]:
    """Turn what a database of studies raises into a `JobError`."""
    try:
        yield
    except _DATABASE_ERRORS as error:
        raise TransientError(
            f"the database of studies answers: {_line(error)}",
            f"Check {STUDIES} and that the database is up.",
        ) from error


def _line(error: Exception) -> str:
    cause = error.__cause__
    return PASSWORD.sub("(hidden)", first_line(cause if isinstance(cause, Exception) else error))


def _pruner(spec: Tune) -> BasePruner:
    least = spec.prune_after_steps or max(1, most_steps(spec) // 3)
    if spec.pruner == "median":
        return MedianPruner(n_startup_trials=spec.prune_after_trials, n_warmup_steps=least)
    if spec.pruner == "halving":
        return SuccessiveHalvingPruner(min_resource=least)
    return NopPruner()


def _about(spec: Tune, goal: Goal, fingerprint: str) -> dict[str, Any]:
    """What all trials of a study must have in common to be compared."""
    return {
        "engine": spec.engine,
        "metric": goal.metric,
        "direction": "maximize" if goal.grows else "minimize",
        "space": [dataclasses.asdict(dimension) for dimension in spec.dimensions],
        "fixed": spec.fixed,
        "dataset": fingerprint,
    }


def _check_same(directory: str, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        if known.get(name) != value:
            raise JobError(
                f"the study in {directory!r} was made with {name} {shown(known.get(name))}, and "
                f"this run has {shown(value)}: its trials cannot be compared with these.",
                "Use another directory for the study, or the settings that it was made with.",
            )
