"""Turn a source into a dataset: validated, split Parquet with a dataset.json.

    spark-submit --master 'local[2]' jobs/prepare.py --run-dir=/tmp/run/prepare \\
        --source=sample:mnist --schema=mnist --features=pixels --label=digit --key=id

The table is read twice, and never held in memory: once to find what is wrong with it and which
classes there are, once to write it; quarantine reads it again. Where preprocessing or the split
look at the good rows before they are written, these stay on the executors' disks meanwhile. A row's
place follows from a hash of its key, so that it is the same however the table is partitioned.
Without a key column a row is known by its features, and rows with equal features share a split.
In place of a source, `tables` and a `query` give the rows; the query runs once.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainyard import preprocessing, reuse, store
from trainyard.canonical import canonical, label_kind, with_original
from trainyard.dataset import CLASSIFICATION, KEY, Dataset, Fitted
from trainyard.errors import JobError
from trainyard.good_rows import changed, check_margins, good_rows, held
from trainyard.job import Run, run_job
from trainyard.layout import DATA, QUARANTINE, join
from trainyard.opened import Opened, open_rows
from trainyard.parts import file_schema, sweep
from trainyard.preprocessing import Preprocessing
from trainyard.quarantine import write_quarantine
from trainyard.schema import faults, read_schema
from trainyard.session import spark_session
from trainyard.sparkerrors import unwrapped
from trainyard.specs import SPLITS, Prepare
from trainyard.split import SPLIT, check_counts, is_read_again, plan, rows_of_each, split_rows
from trainyard.survey import Survey, check_varies, class_of_each, survey
from trainyard.validation import validate
from trainyard.writer import Part, Target, write_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 3
"""Version of what this job writes; a change of it changes every fingerprint."""

_NOT_CONTENT = {
    *("run_dir", "source", "format", "tables", "query", "findings", "reuse", "datasets"),
}
"""Settings that do not shape a dataset: what its rows are is in the digest itself."""


def prepare(spec: Prepare, run: Run) -> dict[str, Any]:
    """Run the job in a Spark session of its own."""
    with spark_session(f"prepare {spec.origin}", spec.imports, run.events) as spark, unwrapped():
        return prepare_dataset(spark, spec, run)


def prepare_dataset(spark: SparkSession, spec: Prepare, run: Run) -> dict[str, Any]:
    """Make the dataset and return the result's fields.

    Raises:
        JobError: the source cannot be used as it is.
    """
    directory = join(run.directory, DATA)
    with open_rows(spark, spec, read_schema(spec.schema), directory) as opened:
        return make_once(spec, opened, run)


def make_once(spec: Prepare, opened: Opened, run: Run) -> dict[str, Any]:
    """Make the dataset, unless there is one of the same rows and settings."""
    run.events.progress("survey", 0, 1, "passes")
    found = survey(opened.rows, opened.layout)
    for text in validate(spec, opened.layout, found, run.directory):
        run.events.note(text)
    classes = classes_of(spec, opened, found)
    run.events.progress("survey", 1, 1, "passes", rows=found.rows, bad=found.faults.rows)
    if opened.tables:
        told = ", ".join(f"{count:,} in {name}" for name, count in opened.tables.items())
        run.events.note(f"the query makes {found.rows:,} rows of {told}")

    outputs = put_aside(spec, opened, found, run)
    print_ = fingerprint(spec, opened, found)
    dataset = reuse.find(spec, print_)
    if dataset is None:
        dataset = make(spec, opened, found, classes, run, print_)
        reuse.record(spec, dataset)
    else:
        run.events.note(
            f"the same rows and settings were prepared before: {dataset.directory} is used again"
        )
    counts = {name: dataset.rows(name) for name in SPLITS}
    written = sum(counts.values())
    run.events.progress("write", written, found.rows, "rows", **counts)
    return {
        "outputs": {"dataset": dataset.directory, **outputs},
        "rows": {"in": found.rows, "out": written, "quarantined": found.faults.rows, **counts},
        **({"tables": opened.tables} if opened.tables else {}),
        "fingerprints": {"dataset": dataset.fingerprint},
    }


def classes_of(spec: Prepare, opened: Opened, found: Survey) -> dict[str, str | int]:
    """The class of each label text; none for a regression."""
    if spec.task != CLASSIFICATION:
        check_varies(found, spec.label)
        return {}
    return class_of_each(found, spec.label, label_kind(opened.table, spec.label))


def put_aside(spec: Prepare, opened: Opened, found: Survey, run: Run) -> dict[str, str]:
    """Write the bad rows to quarantine, if there are any, and return where."""
    if not found.faults.rows:
        return {}
    table = with_original(opened.table)
    rows = canonical(table, opened.layout, faults(opened.schema, table))
    count = write_quarantine(rows, opened.layout, run.directory, f"c{run.claim:04d}")
    if count != found.faults.rows:
        raise changed(f"{found.faults.rows} bad rows at first, {count} later")
    run.events.note(
        f"{count} of {found.rows} rows are bad and in quarantine: "
        + "; ".join(f"{n} where {reason}" for reason, n in found.faults.counts.most_common(5))
    )
    return {"quarantine": join(run.directory, QUARANTINE)}


def make(
    spec: Prepare,
    opened: Opened,
    found: Survey,
    class_of: Mapping[str, str | int],
    run: Run,
    print_: str,
) -> Dataset:
    """Write the dataset of the good rows."""
    store.remove(join(run.directory, DATA))
    classes = tuple(sorted(set(class_of.values())))
    index_of = {text: classes.index(value) for text, value in class_of.items()}
    wanted = preprocessing.is_wanted(spec)
    rows = good_rows(opened.rows, opened.layout, index_of, raw=wanted)
    with held(rows, again=wanted or is_read_again(spec)):
        parts, target, fitted = write(spec, opened, found, split_rows(rows, spec), classes, run)
    by_split = {
        name: [p for p in parts if target.plan.split_of(p.number) == name] for name in SPLITS
    }
    counts = {name: sum(p.file.rows for p in by_split[name]) for name in SPLITS}
    check_counts(spec, counts, is_flag=opened.has_flag(spec))
    for text in class_notes(by_split, classes):
        run.events.note(text)
    dataset = Dataset(
        directory=target.directory,
        fingerprint=print_,
        source=spec.origin,
        task=spec.task,
        features=spec.features,
        label=spec.label,
        key=spec.key,
        weight=spec.weight,
        base_margin=spec.base_margin,
        keep=spec.keep,
        width=fitted.width if fitted else opened.layout.width,
        classes=classes,
        preprocessing=fitted,
        splits={name: tuple(part.file for part in by_split[name]) for name in SPLITS},
    )
    dataset.write()
    return dataset


def write(
    spec: Prepare,
    opened: Opened,
    found: Survey,
    rows: DataFrame,
    classes: tuple[str | int, ...],
    run: Run,
) -> tuple[list[Part], Target, Fitted | None]:
    """Write the files of the good rows, preprocessed as the training rows are."""
    directory, layout = join(run.directory, DATA), opened.layout
    check_keys(spec, rows, found)
    check_margins(rows, spec.base_margin, len(classes))
    fitted = None
    if preprocessing.is_wanted(spec):
        preprocessing.check_columns(spec, layout, found)
        run.events.progress("fit", 0, 1, "passes")
        training = rows.filter(f"{SPLIT} = 0")
        if training.isEmpty():
            check_counts(spec, rows_of_each(rows), is_flag=opened.has_flag(spec))
        made = Preprocessing.fit(training, spec, layout, directory)
        run.events.progress("fit", 1, 1, "passes")
        rows, fitted = made.apply(rows), made.fitted
    target = Target(
        directory=directory,
        prefix=f"c{run.claim:04d}",
        schema=file_schema(
            task=spec.task,
            has_weight=spec.weight is not None,
            has_margin=spec.base_margin is not None,
            has_keep=bool(spec.keep),
            is_preprocessed=fitted is not None,
        ),
        row_group_rows=spec.row_group_rows,
        unique_keys=spec.key is not None,
        seed=spec.split_seed,
        plan=plan(spec, rows, count=found.rows, width=fitted.width if fitted else layout.width),
    )
    run.events.progress("write", 0, found.rows, "rows")
    parts = write_parts(rows, target)
    check_parts(parts, found, spec)
    sweep(directory, [part.file.path for part in parts])
    return parts, target, fitted


def fingerprint(spec: Prepare, opened: Opened, found: Survey) -> str:
    """A digest of the rows, in any order, of the query's text and of the settings that count.

    Of the tables that a query reads only what reaches the rows counts.
    """
    settings = {name: v for name, v in spec.to_mapping().items() if name not in _NOT_CONTENT}
    made_from = {
        "format": FORMAT,
        "rows": found.rows,
        "content": found.content,
        "bad": sorted(found.faults.counts.items()),
        "query": opened.query,
        "settings": settings,
    }
    return hashlib.sha256(store.to_json(made_from)).hexdigest()


def check_keys(spec: Prepare, rows: DataFrame, found: Survey) -> None:
    """Raise `JobError` when a key comes twice where its rows may be in two splits.

    A split by hash brings equal keys together, and the writer sees them side by side.
    """
    if spec.key is None or (spec.split_by == "hash" and not spec.stratify):
        return
    twice = rows.groupBy(KEY).count().filter("count > 1")
    examples = [row[KEY] for row in twice.orderBy(KEY).limit(3).collect()]
    if examples:
        raise repeats(spec, rows.count() - rows.select(KEY).distinct().count(), found, examples)


def check_parts(parts: list[Part], found: Survey, spec: Prepare) -> None:
    """Raise `JobError` when keys repeat, or what was written is not what the survey read."""
    repeated = [key for part in parts for key in part.repeated]
    if spec.key is not None and repeated:
        raise repeats(spec, sum(p.repeats for p in parts), found, repeated[:3])
    written = sum(part.file.rows for part in parts)
    if written != found.rows - found.faults.rows:
        raise changed(f"{found.rows - found.faults.rows} good rows at first, {written} later")
    if not found.faults.rows and sum(part.content for part in parts) % 2**64 != found.content:
        raise changed(f"{written} rows both times, but not the same")


def repeats(spec: Prepare, count: int, found: Survey, keys: list[str]) -> JobError:
    """The error for keys that come twice."""
    return JobError(
        f"key column {spec.key!r} does not tell rows apart: {count} of {found.rows} rows repeat a "
        f"key, such as {', '.join(map(repr, keys))}.",
        "Remove the repeated rows, or name another key, or none to go by content.",
    )


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
