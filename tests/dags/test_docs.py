"""What the documentation points at is there."""

from __future__ import annotations

import ast
import re

import pytest
from tests.dags.conftest import ROOT

FAILURES = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
TESTS = re.findall(r"`(tests/[^`]+::[^`]+)`", FAILURES)


def test_every_row_of_the_failures_has_a_test() -> None:
    rows = [line for line in FAILURES.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| what happens elsewhere")]
    assert len(rows) > 50
    assert [row for row in rows if "::test_" not in row.split(" | ")[-1]] == []


@pytest.mark.parametrize("node", sorted(set(TESTS)))
def test_a_test_that_the_failures_name_exists(node: str) -> None:
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
