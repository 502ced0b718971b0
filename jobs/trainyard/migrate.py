"""Says what a program uses of libraries that lost their platform, and what to change.

    python -m trainyard.migrate FILE

The file is read and not run, by Python alone: no package need be installed. Each line of the answer
is `FILE:LINE: what is there -> the change`.
Exits with 0, or with 2 where the file is no Python 3 program.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import JobError, nearest
from trainyard.horovod.estimator.params import ESTIMATOR
from trainyard.ml.parameter import Setting
from trainyard.replaced import BACKEND, GONE, HERE, MODULES, MOVED, OLD, STORE
from trainyard.sparkdl.xgboost.params import CLASSES, COLUMNS, OLD_NAMES, TRAINING

_XGBOOST = {setting.name: setting for setting in (*COLUMNS, *CLASSES, *TRAINING)}
PARAMETERS: dict[str, dict[str, Setting]] = {
    "TorchEstimator": {setting.name: setting for setting in ESTIMATOR},
    "XgboostClassifier": _XGBOOST,
    "XgboostRegressor": _XGBOOST,
}
"""The parameters of each class that is made by keywords."""


@dataclass(frozen=True, order=True)
class Finding:
    """A line to change.

    Attributes:
        line: its number.
        what: what is there.
        change: what to do.
    """

    line: int
    what: str
    change: str


def main() -> int:
    """Report on a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", metavar="FILE", help="a Python program")
    path = parser.parse_args().file
    try:
        found = findings(_source(path), path)
    except JobError as error:
        print(error, file=sys.stderr)
        return 2
    for finding in found:
        print(f"{path}:{finding.line}: {finding.what} -> {finding.change}")
    if not found:
        print(f"{path}: it uses none of these libraries: {', '.join(OLD)}")
    return 0


def _source(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise JobError(f"{path!r} cannot be read: {error}.", "Name a Python file.") from error


def findings(source: str | bytes, path: str = "FILE") -> list[Finding]:
    """What a program uses of these libraries, by line.

    Args:
        source: the program; as bytes in the encoding that it declares, else in UTF-8.
        path: its name in errors.

    Raises:
        JobError: it is no Python 3, or a notebook.
    """
    tree = _parsed(source, path)
    names = dict(_names(tree))
    names.update(dict(_aliases(tree, names)))
    return sorted({*_imports(tree), *_calls(tree, names), *_setters(tree, names)})


def _parsed(source: str | bytes, path: str) -> ast.Module:
    if _is_notebook(source):
        raise JobError(
            f"{path!r} is a notebook.",
            "Save it as a program first: jupyter nbconvert --to script FILE.",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes and the like, which are no concern here
            return ast.parse(source)
    except SyntaxError as error:
        cause = f"{path}:{error.lineno or 1} is no Python 3: {error.msg}."
    except (ValueError, RecursionError, MemoryError) as error:
        cause = f"{path!r} is no Python 3: {str(error) or 'it is nested too deeply'}."
    raise JobError(
        cause,
        "Name a program: of a notebook, without lines that begin with % or !; of Python 2, after "
        "2to3.",
    )


def _is_notebook(source: str | bytes) -> bool:
    try:
        found = json.loads(source)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "cells" in found


def _names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What each name in the program that an import gives stands for: `module.name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                every = (*MOVED[node.module], *GONE) if node.module in MOVED else ()
                for name in every if one.name == "*" else (one.name,):
                    yield one.asname or name, f"{node.module}.{name}"
        elif isinstance(node, ast.Import):
            for one in node.names:
                yield (
                    one.asname or one.name.split(".")[0],
                    one.name if one.asname else (one.name.split(".")[0]),
                )


def _aliases(tree: ast.AST, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names that the program gives such things itself, as in `Estimator = TorchEstimator`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (whole := _kind(node.value, names)):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, whole


def _is_old(module: str) -> bool:
    return any(module == old or module.startswith(f"{old}.") for old in OLD)


def _imports(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and _is_old(node.module):
            for one in node.names:
                what = f"from {node.module} import {one.name}"
                renamed = f" as {one.asname}" if one.asname else ""
                yield Finding(one.lineno, what, _moved(node.module, one.name, renamed))
        elif isinstance(node, ast.Import):
            for one in node.names:
                if _is_old(one.name):
                    what = f"import {one.name}"
                    change = _what_of(one.name) if one.name in MOVED else _unknown(one.name)
                    yield Finding(one.lineno, what, change)


def _moved(module: str, name: str, renamed: str) -> str:
    if name == "*" and module in MOVED:
        return _what_of(module)
    places = MOVED.get(module, {})
    if name in places:
        return f"from {places[name]} import {name}{renamed}"
    if f"{module}.{name}" in MOVED:
        return _what_of(f"{module}.{name}")
    return GONE.get(name) or _unknown(f"{module}.{name}")


def _what_of(module: str) -> str:
    """What to import in place of a whole module."""
    names = MOVED[module]
    known = ", ".join(sorted(names))
    return f"import what you use of it: from {min(names.values())} import {known}"


def _unknown(module: str) -> str:
    known = (change for old, change in MODULES.items() if f"{module}.".startswith(f"{old}."))
    return next(known, "there is no such thing here")


def _kind(function: ast.expr, names: Mapping[str, str]) -> str:
    """The class that a call makes, or the class and the method that it calls, by its own name."""
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name) or function.id not in names:
        return ""
    whole = ".".join([names[function.id], *reversed(parts)])
    return whole if _is_old(whole) or whole.startswith("trainyard.") else ""


def _calls(tree: ast.AST, names: Mapping[str, str]) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not (whole := _kind(node.func, names)):
            continue
        last = whole.rpartition(".")[2]
        if last in GONE:
            yield Finding(node.lineno, f"{last}(...)", GONE[last])
        if whole.endswith("horovod.spark.run"):
            change = f"{HERE}.SparkBackend(num_proc=n).run(fn, args)"
            yield Finding(node.lineno, "horovod.spark.run(...)", change)
        for keyword in node.keywords:
            if keyword.arg is not None and (change := _keyword(last, keyword)):
                yield Finding(keyword.value.lineno, f"{last}({keyword.arg}=...)", change)


def _keyword(kind: str, keyword: ast.keyword) -> str:
    """What to do about an argument; nothing where it stays."""
    name, known = str(keyword.arg), PARAMETERS.get(kind)
    if kind == "SparkBackend":
        return BACKEND.get(name, "")
    if kind == "create":
        if name == "storage_options" and isinstance(keyword.value, ast.Dict):
            keys = [key.value for key in keyword.value.keys if isinstance(key, ast.Constant)]
            return "; ".join(f"{key}: {STORE[str(key)]}" for key in keys if key in STORE)
        return STORE.get(name, "")
    if known is None:
        return ""
    if name in known:
        return _refused(known[name], keyword.value)
    if kind.startswith("Xgboost") and name in OLD_NAMES:
        return _sentence(OLD_NAMES[name])
    return f"{kind} has no such parameter. {nearest(name, known)}"


def _refused(setting: Setting, value: ast.expr) -> str:
    if setting.refused is None:
        return ""
    if isinstance(value, ast.Constant) and value.value in (None, setting.default):
        return ""
    return _sentence(setting.refused)


def _sentence(told: tuple[str, str]) -> str:
    problem, fix = told
    return f"{problem}. {fix}"


def _setters(tree: ast.AST, names: Mapping[str, str]) -> Iterator[Finding]:
    """Calls of setters whose parameter is refused, where the program imports the estimator."""
    used = {whole.rpartition(".")[2] for whole in names.values()}
    refused = {
        f"set{setting.method}": setting
        for kind, known in PARAMETERS.items()
        if kind in used
        for setting in known.values()
        if setting.refused
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in refused
            and node.args
            and (change := _refused(refused[node.func.attr], node.args[0]))
        ):
            yield Finding(node.lineno, f"{node.func.attr}(...)", change)


if __name__ == "__main__":
    sys.exit(main())
