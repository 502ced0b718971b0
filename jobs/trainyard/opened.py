"""A source, or what a query makes of several, opened: canonical rows with known columns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainyard.canonical import canonical, common_width
from trainyard.query import open_query, open_tables, read_query
from trainyard.rows import Layout
from trainyard.schema import Schema, faults
from trainyard.sources import Table, check_apart, open_table
from trainyard.split import check_bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trainyard.specs import Prepare


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A source whose columns are known.

    Attributes:
        table: the source.
        schema: the rules for its columns.
        rows: its `canonical` rows.
        layout: which columns make them.
        query: text of the query that made the table, if one did.
        tables: rows of each table that it reads.
    """

    table: Table
    schema: Schema
    rows: DataFrame
    layout: Layout
    query: str | None = None
    tables: dict[str, int] = field(default_factory=dict)

    def has_flag(self, spec: Prepare) -> bool:
        """Whether a boolean column says which rows validate."""
        name = spec.split_column if spec.split_by == "column" else None
        return name is not None and self.table.frame.schema[name].dataType.typeName() == "boolean"


def open_rows(spark: SparkSession, spec: Prepare, schema: Schema, directory: str) -> Opened:
    """Open the source, or the tables and their query, and make the rows canonical.

    Args:
        directory: where the results will go.

    Raises:
        JobError: the source lies where the results will go, a column is not there, or has a type
            that cannot be used.
    """
    layout = Layout(
        numbers=tuple(name for name in spec.features if name not in spec.categorical),
        categories=spec.categorical,
        width=0,
        missing=spec.imputation != "none",
        label=spec.label,
        task=spec.task,
        key=spec.key,
        weight=spec.weight,
        base_margin=spec.base_margin,
        keep=spec.keep,
        split_by=spec.split_by,
        split_column=spec.split_column,
    )
    columns = list(dict.fromkeys([*layout.columns, *schema.columns]))
    for source in spec.tables.values() if spec.source is None else [spec.source]:
        check_apart(source, directory)
    query, counts = None, {}
    if spec.source is not None:
        table = open_table(spark, spec.source, spec.format, columns)
    else:
        query = read_query(spec.query or "")
        tables = open_tables(spark, spec.tables)
        table = open_query(spark, spec.origin, query, tables, columns)
        counts = {name: frame.count() for name, frame in tables.items()}
    if spec.split_column is not None:
        check_bounds(spec, table.frame.schema[spec.split_column].dataType)
    rows = canonical(table, layout, faults(schema, table))
    # Told by the schema, it need not be found by a pass over the table.
    rule = schema.columns.get(layout.numbers[0]) if len(layout.numbers) == 1 else None
    told = rule.width if rule is not None else None
    width = told or common_width(rows, table, layout.numbers)
    layout = dataclasses.replace(layout, width=width)
    return Opened(table=table, schema=schema, rows=rows, layout=layout, query=query, tables=counts)
