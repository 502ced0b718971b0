"""What Trainyard reads from the [trainyard] section of Airflow's configuration.

Each option can be given as an environment variable, such as AIRFLOW__TRAINYARD__STORE.
"""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import conf

import trainyard
from trainyard import store
from trainyard.errors import JobError
from trainyard.layout import join

SECTION = "trainyard"


def store_root() -> str:
    """The directory or URI under which every run directory lies.

    Raises:
        JobError: it is not configured, or is a relative path.
    """
    root = conf.get(SECTION, "store", fallback="").strip()
    fix = "Set AIRFLOW__TRAINYARD__STORE to a directory's full path or to a URI such as s3://bucket/x."
    if not root:
        raise JobError("the option 'store' of [trainyard] is not set.", fix)
    if store.is_local(root) and not store.local_path(root).is_absolute():
        raise JobError(
            f"the option 'store' of [trainyard] is {root!r}: it is a relative path.", fix
        )
    return root


def datasets() -> str:
    """The index of prepared datasets that runs reuse; see `store_root` for the errors."""
    return join(store_root(), "datasets")


def jobs_folder() -> Path:
    """Where the jobs' programs and their library are: by default where the contract lies."""
    beside_contract = Path(trainyard.__file__).parent.parent
    return Path(conf.get(SECTION, "jobs_folder", fallback="") or beside_contract)


def program(job: str) -> Path:
    """The program of a job: `<job>.py` in the jobs folder.

    Raises:
        JobError: there is no such file.
    """
    path = jobs_folder() / f"{job}.py"
    if not path.is_file():
        raise JobError(
            f"there is no program {path} for the job {job!r}.",
            "Set AIRFLOW__TRAINYARD__JOBS_FOLDER to the folder that holds the jobs' programs.",
        )
    return path


def cluster_program(job: str) -> str:
    """The program of a job as a cluster's workers find it: by default where it is here.

    Raises:
        JobError: it is to be where it is here, and is not.
    """
    folder = conf.get(SECTION, "cluster_jobs_folder", fallback="")
    return join(folder, f"{job}.py") if folder else str(program(job))


def doctor() -> bool:
    """Whether the first task of a pipeline looks at what the others need."""
    return bool(conf.getboolean(SECTION, "doctor", fallback=True))


def pool() -> str:
    """The Airflow pool in which jobs run."""
    return conf.get(SECTION, "pool", fallback="") or "default_pool"


def tracking_uri() -> str:
    """Where MLflow keeps runs and models: MLFLOW_TRACKING_URI, or a file in a local store.

    Raises:
        JobError: the store is not local and MLFLOW_TRACKING_URI is not set.
    """
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    root = store_root()
    if not store.is_local(root):
        raise JobError(
            f"MLFLOW_TRACKING_URI is not set, and the store {root!r} cannot hold its database.",
            "Set MLFLOW_TRACKING_URI to an MLflow server or a database.",
        )
    return "sqlite:///" + join(str(store.local_path(root)), "mlflow.db")
