"""Where rows come from: files on any path that Spark reads, Spark's tables, and samples.

/data/x.parquet, s3a://bucket/y.csv.gz, /data/z/     Parquet, CSV and JSON lines
table:sales.orders                                    a table of Spark's catalog
sample:mnist                                          see `samples`
/data/mnist/, /data/train-images-idx3-ubyte.gz        MNIST's own files; see `idx`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from trainyard import idx, store
from trainyard.columns import column
from trainyard.errors import JobError, TransientError, nearest
from trainyard.layout import DATASET
from trainyard.samples import SAMPLES

if TYPE_CHECKING:
    from pyspark.sql import Column

_SAMPLE = "sample:"
_TABLE = "table:"
_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSIONS = (".gz", ".bz2", ".zst")
_MALFORMED = "_trainyard_malformed"

Names: TypeAlias = "Sequence[str] | None"
"""Columns wanted, or all."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A source opened for reading; its rows are not read yet.

    Attributes:
        source: what the user named.
        frame: the columns asked for, and `malformed` where the format has it.
        textual: whether every value is text, as in a CSV file.
        malformed: column with the text of a line that cannot be parsed, null in good rows.
    """

    source: str
    frame: DataFrame
    textual: bool = False
    malformed: str | None = None


def open_table(
    spark: SparkSession, source: str, form: str, columns: Sequence[str] | None = None
) -> Table:
    """Open a source and select columns by name.

    Args:
        source: path, URI, or `sample:NAME`.
        form: one of `specs.SOURCE_FORMATS`.
        columns: the names wanted, in any order; all without it.

    Raises:
        JobError: the source or a column is not there, or the format is not known.
    """
    form = detect_format(source) if form == "auto" else form
    try:
        opened = _READERS[form](spark, source, columns)
    except (PySparkException, Py4JJavaError) as error:
        raise _unreadable(source, form, error) from error
    return opened


def check_apart(source: str, directory: str) -> None:
    """Raise `JobError` when a source and the directory of the results lie one in the other."""
    if source.startswith((_SAMPLE, _TABLE)):
        return
    written = store.real(directory) + "/"
    for path in store.matches(source):
        read = path.rstrip("/") + "/"
        if read.startswith(written) or written.startswith(read):
            raise JobError(
                f"setting 'source' is {source!r}, where the results would go too: {directory!r}.",
                "Use another run directory.",
            )


def detect_format(source: str) -> str:
    """Say by its name, or the names of a directory's files, in which format a source is.

    Raises:
        JobError: the names do not tell.
    """
    if source.startswith((_SAMPLE, _TABLE)):
        return source.partition(":")[0]
    if idx.is_file(source):
        return "idx"
    if known := _format_of(source):
        return known
    names = _names_in(source)
    if DATASET in names:
        raise JobError(
            f"setting 'source' is {source!r}: that is a prepared dataset already.",
            "Use it as the dataset of a training, or name the table it was made from.",
        )
    if any(idx.is_file(name) for name in names):
        return "idx"
    forms = (_format_of(name) for name in names if not name.startswith(("_", ".")))
    found = sorted({form for form in forms if form})
    if len(found) == 1:
        return found[0]
    several = f"it holds files of several formats ({', '.join(found)})"
    raise JobError(
        f"setting 'source' is {source!r}: {several if found else 'no name tells its format'}.",
        "Check the path, or set 'format' to parquet, csv, json or idx.",
    )


def named_format(source: str) -> str | None:
    """The format of a table that a source's own name tells, without a look at what is there."""
    return "table" if source.startswith(_TABLE) else _format_of(source)


def _names_in(source: str) -> list[str]:
    try:
        return store.list_names(source)
    except NotADirectoryError:
        return []


def _format_of(name: str) -> str | None:
    name = name.rstrip("/")
    for compression in _COMPRESSIONS:
        name = name.removesuffix(compression)
    return next((form for suffix, form in _SUFFIXES.items() if name.endswith(suffix)), None)


def _read_parquet(spark: SparkSession, source: str, columns: Names) -> Table:
    frame = spark.read.parquet(source)
    return Table(source=source, frame=frame.select(wanted(source, frame.columns, columns)))


def _read_json(spark: SparkSession, source: str, columns: Names) -> Table:
    frame = spark.read.json(source, columnNameOfCorruptRecord=_MALFORMED)
    malformed = _MALFORMED if _MALFORMED in frame.columns else None
    chosen = wanted(source, [c for c in frame.columns if c != malformed], columns)
    extra = [column(malformed)] if malformed else []
    return Table(source=source, frame=frame.select(*chosen, *extra), malformed=malformed)


def _read_csv(spark: SparkSession, source: str, columns: Names) -> Table:
    # A line's length is only checked when no column is skipped.
    spark.conf.set("spark.sql.csv.parser.columnPruning.enabled", "false")
    dialect: dict[str, Any] = {"header": True, "escape": '"'}
    header = spark.read.csv(source, **dialect).columns
    chosen = wanted(source, header, columns)
    schema = StructType()
    for name in [*header, _MALFORMED]:
        schema.add(name, StringType())
    # Otherwise the first file's header would name the columns of all files, by position.
    frame = spark.read.csv(
        source, **dialect, schema=schema, enforceSchema=False, columnNameOfCorruptRecord=_MALFORMED
    )
    return Table(
        source=source,
        frame=frame.select(*chosen, column(_MALFORMED)),
        textual=True,
        malformed=_MALFORMED,
    )


def _read_sample(spark: SparkSession, source: str, columns: Names) -> Table:
    name = source.removeprefix(_SAMPLE)
    if name not in SAMPLES:
        raise JobError(
            f"setting 'source' is {source!r}: there is no such sample.", nearest(name, SAMPLES)
        )
    table = SAMPLES[name]()
    wanted(source, table.column_names, columns)
    chosen = table if columns is None else table.select(list(columns))
    return Table(source=source, frame=spark.createDataFrame(chosen))


def _read_table(spark: SparkSession, source: str, columns: Names) -> Table:
    frame = spark.table(source.removeprefix(_TABLE))
    return Table(source=source, frame=frame.select(wanted(source, frame.columns, columns)))


def _read_idx(spark: SparkSession, source: str, columns: Names) -> Table:
    frame = idx.read(spark, source)
    return Table(source=source, frame=frame.select(wanted(source, frame.columns, columns)))


_READERS: dict[str, Callable[[SparkSession, str, Names], Table]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "json": _read_json,
    "idx": _read_idx,
    "table": _read_table,
    "sample": _read_sample,
}


def wanted(source: str, present: Sequence[str], columns: Names) -> list[Column]:
    """The columns of these names, or all.

    Raises:
        JobError: one is not there.
    """
    columns = present if columns is None else columns
    for name in columns:
        if name not in present:
            raise JobError(
                f"{source!r} has no column {name!r}; it has {len(present)}.",
                f"{nearest(name, present)} A key, weight or column to keep may be left out.",
            )
    return [column(name) for name in columns]


def _unreadable(source: str, form: str, error: Exception) -> JobError:
    condition = getattr(error, "getCondition", lambda: None)()
    if condition == "PATH_NOT_FOUND":
        return JobError(f"setting 'source' is {source!r}: nothing is there.", "Check the path.")
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return JobError(
            f"setting 'source' is {source!r}: Spark's catalog has no such table.",
            "Check the name; a table of Hive needs spark.sql.catalogImplementation=hive.",
        )
    if condition == "UNABLE_TO_INFER_SCHEMA":
        return JobError(
            f"setting 'source' is {source!r}: there is no {form} file.",
            "Check the path and 'format'.",
        )
    lines = [line for line in str(error).splitlines() if line.startswith(("[", ":"))] or [
        str(error)
    ]
    # What Spark's own analysis refuses stays refused; what Java raises may be a store's bad moment.
    kind = JobError if isinstance(error, PySparkException) else TransientError
    return kind(
        f"setting 'source' is {source!r}: it cannot be read as {form}: {lines[0].strip(': ')}",
        "Check the path and the setting 'format'.",
    )
