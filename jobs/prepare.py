"""Turn a source into a dataset: validated, split Parquet with a dataset.json.

    spark-submit --master 'local[2]' jobs/prepare.py --run-dir=/tmp/run/prepare \\
        --source=sample:mnist --features=pixels --label=digit --key=id

The table is read twice, and never held in memory: once to find what is wrong with it and which
classes there are, once to write it. A row's split and its place in it follow from a hash of its
key, so that they are the same however the table is partitioned. Without a key column a row is known
by its features, and rows with equal features share a split.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from trainyard import store
from trainyard.dataset import Dataset
from trainyard.errors import JobError
from trainyard.job import Run, run_job
from trainyard.layout import DATA, join
from trainyard.parts import sweep
from trainyard.rows import Layout, canonical, common_width, label_kind
from trainyard.session import spark_session
from trainyard.sources import check_apart, open_table
from trainyard.sparkerrors import unwrapped
from trainyard.specs import SPLITS, Prepare
from trainyard.split import check_counts, plan
from trainyard.survey import Survey, check_rows, class_of_each, notes, survey
from trainyard.writer import Part, Target, changed, write_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = 1
"""Version of what this job writes; a change of it changes every fingerprint."""


def prepare(spec: Prepare, run: Run) -> dict[str, Any]:
    """Run the job in a Spark session of its own."""
    with spark_session(f"prepare {spec.source}") as spark, unwrapped():
        return prepare_dataset(spark, spec, run)


def prepare_dataset(spark: SparkSession, spec: Prepare, run: Run) -> dict[str, Any]:
    """Make the dataset and return the result's fields.

    Raises:
        JobError: the source cannot be used as it is.
    """
    directory = join(run.directory, DATA)
    check_apart(spec.source, directory)
    columns = [*spec.features, spec.label, *([spec.key] if spec.key else [])]
    table = open_table(spark, spec.source, spec.format, columns)
    rows = canonical(table, spec.features, spec.label, spec.key)

    run.events.progress("survey", 0, 1, "passes")
    layout = Layout(
        features=spec.features,
        width=common_width(rows, spec.features),
        label=spec.label,
        key=spec.key,
    )
    found = survey(rows, layout)
    check_rows(found, spec.source)
    class_of = class_of_each(found, spec.label, label_kind(table, spec.label))
    classes = tuple(sorted(set(class_of.values())))
    for text in notes(found):
        run.events.note(text)
    run.events.progress("survey", 1, 1, "passes", rows=found.rows, classes=len(classes))

    store.remove(directory)
    target = Target(
        directory=directory,
        prefix=f"c{run.claim:04d}",
        row_group_rows=spec.row_group_rows,
        seed=spec.split_seed,
        plan=plan(spec, rows=found.rows, width=layout.width),
    )
    run.events.progress("write", 0, found.rows, "rows")
    index_of = {text: classes.index(value) for text, value in class_of.items()}
    parts = write_parts(rows, layout, index_of, target)
    check_parts(parts, found, spec)
    sweep(directory, [part.file.path for part in parts])
    by_split = {
        name: [p for p in parts if target.plan.split_of(p.number) == name] for name in SPLITS
    }
    counts = {name: sum(part.file.rows for part in by_split[name]) for name in SPLITS}
    check_counts(spec, counts)
    for text in class_notes(by_split, classes):
        run.events.note(text)

    dataset = Dataset(
        directory=directory,
        fingerprint=fingerprint(spec, found),
        source=spec.source,
        features=spec.features,
        label=spec.label,
        key=spec.key,
        width=layout.width,
        classes=classes,
        splits={name: tuple(part.file for part in by_split[name]) for name in SPLITS},
    )
    dataset.write()
    written = sum(counts.values())
    run.events.progress("write", written, found.rows, "rows", **counts)
    return {
        "outputs": {"dataset": directory},
        "rows": {"in": found.rows, "out": written, "quarantined": found.faults.rows, **counts},
        "fingerprints": {"dataset": dataset.fingerprint},
    }


def fingerprint(spec: Prepare, found: Survey) -> str:
    """A digest of the rows, in any order, and of the settings that shape the dataset."""
    settings = spec.to_mapping()
    for name in ("run_dir", "source", "format"):
        del settings[name]
    made_from = {
        "format": FORMAT,
        "rows": found.rows,
        "content": found.content,
        "settings": settings,
    }
    return hashlib.sha256(store.to_json(made_from)).hexdigest()


def check_parts(parts: list[Part], found: Survey, spec: Prepare) -> None:
    """Raise `JobError` when keys repeat, or what was written is not what the survey read."""
    repeated = [key for part in parts for key in part.repeated]
    if spec.key is not None and repeated:
        raise JobError(
            f"key column {spec.key!r} does not tell rows apart: {sum(p.repeats for p in parts)} of "
            f"{found.rows} rows repeat a key, such as {', '.join(map(repr, repeated[:3]))}.",
            "Remove the repeated rows, or name another key, or none to go by content.",
        )
    written = sum(part.file.rows for part in parts)
    if written != found.rows - found.faults.rows:
        raise changed(f"{found.rows - found.faults.rows} good rows at first, {written} later")
    if not found.faults.rows and sum(part.content for part in parts) % 2**64 != found.content:
        raise changed(f"{written} rows both times, but not the same")


def class_notes(by_split: dict[str, list[Part]], classes: tuple[str | int, ...]) -> list[str]:
    """Which classes a split lacks, for the reader of the log."""
    texts = []
    for name, parts in by_split.items():
        labels: Counter[int] = sum((part.labels for part in parts), Counter())
        missing = [str(value) for index, value in enumerate(classes) if labels[index] == 0]
        if missing and labels:
            texts.append(f"the {name} split has no row of class {', '.join(missing[:5])}")
    return texts


if __name__ == "__main__":
    sys.exit(run_job(Prepare, prepare))
