"""Rows that a query makes of several tables: Spark SQL over views of them.

The query runs once, and its rows stay on the executors' disks while they are read several times. It
must give the same rows for the same tables, or no dataset could be made again: what draws numbers,
asks for the time or takes any rows is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.errors import AnalysisException, ParseException

from trainyard import store
from trainyard.columns import column
from trainyard.errors import JobError, SettingError, nearest
from trainyard.sources import Table, open_table, wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

_EXAMPLES = 3


def read_query(named: str) -> str:
    """The text of a query: a .sql file's, a packaged one's, or the setting itself.

    Raises:
        SettingError: there is no such file or packaged query.
    """
    text = named
    if named.endswith(".sql"):
        try:
            text = store.read_bytes(named).decode()
        except FileNotFoundError as error:
            raise SettingError("query", named, "nothing is there", "Check the path.") from error
    elif len(named.split()) == 1:
        packaged = resources.files("trainyard") / "queries"
        names = [file.name.removesuffix(".sql") for file in packaged.iterdir()]
        if named not in names:
            raise SettingError(
                "query",
                named,
                "there is no such packaged query",
                f"{nearest(named, names)} Or give a SELECT, or a path that ends in .sql.",
            )
        text = (packaged / f"{named}.sql").read_text()
    return text.strip().removesuffix(";").strip()


def open_tables(spark: SparkSession, tables: Mapping[str, str]) -> dict[str, DataFrame]:
    """Make a view of each table, and return them by name.

    Raises:
        JobError: one cannot be read, or has lines that cannot be parsed.
    """
    opened = {}
    for name, source in tables.items():
        try:
            table = open_table(spark, source, "auto")
        except JobError as error:
            cause = error.cause.removeprefix("setting 'source' is ")
            raise JobError(f"setting 'tables' has {name!r}: {cause}", error.fix) from error
        frame = table.frame
        if table.malformed:
            # All columns, since Spark does not answer for this one alone.
            bad = frame.filter(column(table.malformed).isNotNull()).limit(_EXAMPLES).collect()
            if bad:
                lines = ", ".join(repr(row[table.malformed]) for row in bad)
                raise JobError(
                    f"setting 'tables' has {name!r}: {source!r} has malformed lines, such as "
                    f"{lines}.",
                    "Correct the lines, or take them out.",
                )
            frame = frame.drop(table.malformed)
        frame.createOrReplaceTempView("`" + name.replace("`", "``") + "`")
        opened[name] = frame
    return opened


def open_query(
    spark: SparkSession,
    named: str,
    text: str,
    tables: Mapping[str, DataFrame],
    columns: Sequence[str],
) -> Table:
    """The columns of a query's result, as a table.

    Args:
        named: what the user named.
        text: its text.
        tables: the tables of which there are views.
        columns: the names wanted, in any order.

    Raises:
        JobError: the query is no SELECT, names what is not there, gives two columns one name, or
            does not give the same rows for the same tables.
    """
    try:
        # In brackets only what gives rows is allowed: nothing is dropped, made or set.
        frame = spark.sql(f"SELECT * FROM ({text}\n)")  # noqa: S608 - it is the user's own SQL
    except ParseException as error:
        raise _unparsed(named, text, error) from error
    except AnalysisException as error:
        raise _unresolved(named, tables, error) from error
    _check_names(named, frame.columns)
    _check_stable(named, spark, frame)
    chosen = frame.select(wanted(named, frame.columns, columns))
    return Table(source=named, frame=chosen.persist(StorageLevel.DISK_ONLY))


def _unparsed(named: str, text: str, error: ParseException) -> SettingError:
    first = text.split(maxsplit=1)[0].upper() if text else ""
    if first not in ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "("):
        return _wrong(named, f"it begins with {first!r}", "Give a SELECT.")
    lines = [line for line in str(error).splitlines() if line.strip()]
    place = next((line for line in lines if line.startswith("==")), "")
    told = lines[0] if lines else str(error)
    return _wrong(named, f"it cannot be parsed: {told} {place}".strip(), "Correct the SELECT.")


def _unresolved(
    named: str, tables: Mapping[str, DataFrame], error: AnalysisException
) -> SettingError:
    told = dict(error.getMessageParameters() or {})
    condition = error.getCondition() or ""
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        name = _plain(told.get("relationName", ""))
        return _wrong(named, f"there is no table {name!r}", nearest(name, tables))
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = _plain(told.get("objectName", ""))
        known = [column for frame in tables.values() for column in frame.columns]
        return _wrong(
            named, f"there is no column {name!r}", nearest(name.rpartition(".")[2], known)
        )
    first = str(error).splitlines()[0]
    return _wrong(named, f"Spark refuses it: {first}", "Correct the query.")


def _check_names(named: str, names: Sequence[str]) -> None:
    folded = [name.lower() for name in names]
    twice = sorted({name for name in names if folded.count(name.lower()) > 1})
    if twice:
        raise _wrong(
            named,
            f"it gives several columns the name {', '.join(map(repr, twice))}",
            "Name each column once: SELECT a.x, b.x AS y.",
        )


def _check_stable(named: str, spark: SparkSession, frame: DataFrame) -> None:
    """Raise `SettingError` when the same tables need not give the same rows."""
    jvm: Any = spark._jvm
    now = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    analyzed = frame._jdf.queryExecution().analyzed()
    found = []
    for plan in _with_subqueries(analyzed):
        for node in _tree(plan):
            found += [f"{name}()" for e in _each(node.expressions()) for name in _unstable(e, now)]
            if node.nodeName() == "Sample":
                found.append("TABLESAMPLE")
            if node.nodeName() in ("GlobalLimit", "Offset") and not _is_sorted(node):
                found.append("LIMIT or OFFSET without ORDER BY")
    if found:
        raise _wrong(
            named,
            f"{', '.join(sorted(set(found)))} need not give the same for the same tables",
            "Take it out, or write its value into a table or the query.",
        )


def _unstable(expression: Any, now: Any) -> Iterator[str]:
    """The functions in an expression whose value does not follow from their arguments."""
    if expression.deterministic() and not expression.containsPattern(now):
        return
    children = [name for child in _each(expression.children()) for name in _unstable(child, now)]
    yield from children or [str(expression.prettyName())]


def _is_sorted(limit: Any) -> bool:
    below = limit
    while below.nodeName() in ("GlobalLimit", "LocalLimit", "Offset", "Project", "SubqueryAlias"):
        below = below.children().apply(0)
    return bool(below.nodeName() == "Sort")


def _with_subqueries(plan: Any) -> Iterator[Any]:
    yield plan
    yield from _each(plan.subqueriesAll())


def _tree(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _each(plan.children()):
        yield from _tree(child)


def _each(sequence: Any) -> Iterator[Any]:
    """The items of a Scala Seq."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _plain(name: str) -> str:
    return name.replace("`", "")


def _wrong(named: str, problem: str, fix: str) -> SettingError:
    return SettingError("query", named, problem, fix)
