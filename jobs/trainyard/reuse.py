"""Datasets that were made before: an index by fingerprint, whose entries are checked when used.

<datasets>/<fingerprint>.json     {"directory": where the dataset lies}
"""

from __future__ import annotations

from trainyard import store
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.layout import PREPROCESSING, join
from trainyard.preprocessing import digest
from trainyard.specs import Prepare


def find(spec: Prepare, fingerprint: str) -> Dataset | None:
    """A whole dataset with this fingerprint, or None: one that was removed or changed is none."""
    if spec.datasets is None or not spec.reuse:
        return None
    try:
        directory = store.read_json(join(spec.datasets, f"{fingerprint}.json"))["directory"]
        dataset = Dataset.read(directory)
        dataset.check_files()
        is_whole = dataset.preprocessing is None or (
            digest(join(directory, PREPROCESSING)) == dataset.preprocessing.sha256
        )
    except (FileNotFoundError, KeyError, TypeError, ValueError, JobError):
        return None
    return dataset if is_whole and dataset.fingerprint == fingerprint else None


def record(spec: Prepare, dataset: Dataset) -> None:
    """Let later runs find a dataset."""
    if spec.datasets is not None:
        entry = {"directory": dataset.directory}
        store.write_json(join(spec.datasets, f"{dataset.fingerprint}.json"), entry)
