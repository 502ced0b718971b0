"""What the documentation points at is there."""

from __future__ import annotations

import ast
import re

import pytest
from tests.dags.conftest import ROOT

TABLES = {
    "failures.md": ("| what happens elsewhere", 50),
    "estimators.md": ("| the old documents", 20),
}
"""Documents with rows that end in their tests: how such a table begins, and how many are known."""


def rows_of(document: str) -> list[str]:
    """The rows of a document's tables of that kind."""
    head, _ = TABLES[document]
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    tables = [block for block in text.split("\n\n") if block.startswith(head)]
    return [row for table in tables for row in table.splitlines()[2:]]


NODES = {
    node
    for document in TABLES
    for row in rows_of(document)
    for node in re.findall(r"`(tests/[^`]+::[^`]+)`", row)
}


@pytest.mark.parametrize("document", list(TABLES))
def test_every_row_has_a_test(document: str) -> None:
    rows = rows_of(document)
    assert len(rows) > TABLES[document][1]
    assert [row for row in rows if "::test_" not in row.split(" | ")[-1]] == []


@pytest.mark.parametrize("node", sorted(NODES))
def test_a_test_that_a_row_names_exists(node: str) -> None:
    file, *names = node.split("::")
    body: list[ast.stmt] = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    for name in names:
        found = [
            statement
            for statement in body
            if isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name == name
        ]
        assert found, f"{file} has no {name}"
        body = found[0].body
