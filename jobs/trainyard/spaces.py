"""The space of a search: which settings of a training job are tried, and within which bounds.

A space is a mapping, as JSON, from the name of a setting, or MAPPING.NAME for a member of one that
is a mapping itself, to what is tried of it:

    {"learning_rate": {"low": 0.001, "high": 0.3, "log": true},
     "max_depth": {"low": 2, "high": 10, "step": 2},
     "booster_params.subsample": {"low": 0.5, "high": 1.0},
     "schedule": {"choices": ["constant", "cosine"]},
     "batch_size": {}}

An empty entry is the range that the contract has beside the setting; an empty space is all of
those that are not fixed. A member of a mapping is whole where its ends and step are, unless it is
known to be a real number. Only the standard library is imported here: Airflow's side checks spaces
too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from trainyard.boosters import BOOSTER_PARAMS
from trainyard.contract import Contract, Field
from trainyard.errors import SettingError, nearest
from trainyard.fields import LARGEST
from trainyard.optimizers import OPTIMIZER_PARAMS

_RANGE = {"low", "high", "step", "log"}

NOT_SEARCHED = (
    "ranks",
    "num_workers",
    "scale_learning_rate",
    "device",
    "streaming",
    "seed",
    "metrics",
)
"""Settings that are not operational and yet nothing to choose a model by."""

_REAL = {f"booster_params.{n}" for n, kind in BOOSTER_PARAMS.items() if kind.form == "number"} | {
    f"optimizer_params.{name}"
    for kinds in OPTIMIZER_PARAMS.values()
    for name, kind in kinds.items()
    if kind == "number"
}
"""Members of mappings that are real numbers, however a range's ends are written."""

_MOST_STEPS = 2**40
"""More than the sampler's real numbers tell apart."""


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One setting of a space.

    Attributes:
        name: the setting, or MAPPING.NAME.
        choices: the values tried; empty for a range.
        low: least number of a range, inclusive.
        high: greatest, inclusive.
        step: distance of the numbers tried, if they have one.
        log: whether they are spread evenly by their logarithms.
        whole: whether they are whole.
    """

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    step: float | None = None
    log: bool = False
    whole: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that must be allowed for all between them to be."""
        return self.choices or (self.low, self.high)

    @property
    def size(self) -> float:
        """How many values are tried at most; infinite for real numbers without a step."""
        if self.choices:
            return len(self.choices)
        step = self.step or (1 if self.whole else None)
        if step is None:
            return math.inf if self.low < self.high else 1
        return round((self.high - self.low) / step) + 1

    @property
    def labels(self) -> dict[str | int | float | bool | None, Any]:
        """The choices by a plain value of each, which is itself or its JSON."""
        plain = (str, int, float, bool, type(None))
        return {c if isinstance(c, plain) else json.dumps(c): c for c in self.choices}


def space_of(
    contract: type[Contract], given: Mapping[str, Any], fixed: Mapping[str, Any]
) -> tuple[Dimension, ...]:
    """Read a space, and check it against a contract.

    Args:
        contract: of the job whose settings are tried.
        given: the space; see the module.
        fixed: settings that all trials have, enough to build the contract.

    Raises:
        SettingError: a setting is not known or not tried, or the contract does not allow an end.
    """
    declared = dict(_declared(contract))
    fields = {field.name: field for field in contract.settings()}
    taken = {name: fields[name].convert(value) for name, value in fixed.items()}
    own = {name: entry for name, entry in declared.items() if not _is_taken(name, taken)}
    space = []
    for name, entry in (given or own).items():
        field = _field(contract, name, given)
        if _is_taken(name, taken):
            raise _refused(name, entry, "it is fixed", "Leave it out of the space, or of fixed.")
        if name != field.name and field.name in given:
            raise _refused(
                name, entry, f"{field.name} is tried as a whole", "Leave one of them out."
            )
        if not isinstance(entry, Mapping):
            raise _refused(name, entry, "it is no mapping", 'Write {"low": 1, "high": 10}.')
        if not entry and name not in declared:
            raise _refused(
                name,
                dict(entry),
                "the contract has no range of its own beside it",
                'Give one, such as {"low": 1, "high": 10}, or {"choices": [...]}.',
            )
        dimension = _dimension(field, name, entry or declared[name])
        for value in dimension.ends:
            try:
                contract.from_mapping(merged(contract, fixed, {name: value}))
            except SettingError as error:
                problem = f"with {value!r} setting {error.name!r} is refused: {error.problem}"
                raise _refused(name, entry or declared[name], problem, error.fix) from error
        space.append(dimension)
    return tuple(space)


def merged(
    contract: type[Contract], settings: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings with tried values in their places: MAPPING.NAME beside the mapping's other members.

    Args:
        contract: whose default a mapping has that is not among the settings.
        settings: those that are given.
        values: those that are tried, by the names of a space.
    """
    fields = {field.name: field for field in contract.settings()}
    found = dict(settings)
    for name, value in values.items():
        outer, dot, inner = name.partition(".")
        if dot:
            others = fields[outer].convert(found.get(outer, fields[outer].default))
            found[outer] = {**others, inner: value}
        else:
            found[outer] = value
    return found


def _is_taken(name: str, taken: Mapping[str, Any]) -> bool:
    outer, dot, inner = name.partition(".")
    return outer in taken and (not dot or inner in taken[outer])


def _declared(contract: type[Contract]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in contract.settings():
        search = field.setting.search
        if search is None:
            continue
        if field.kind is dict:
            yield from ((f"{field.name}.{name}", entry) for name, entry in search.items())
        else:
            yield field.name, search


def _field(contract: type[Contract], name: str, given: Mapping[str, Any]) -> Field:
    """The setting that a name of a space is of."""
    fields = {field.name: field for field in contract.settings() if _is_tried(field)}
    outer, dot, inner = name.partition(".")
    if outer not in fields:
        known = outer in {field.name for field in contract.settings()}
        problem = "is nothing to choose a model by" if known else "is no setting"
        raise SettingError(
            "space", given, f"{outer!r} {problem} of {contract.job}", nearest(outer, fields)
        )
    if dot and (fields[outer].kind is not dict or not inner):
        raise SettingError(
            "space", given, f"{outer!r} has no members to name", f"Write it as {outer!r} alone."
        )
    return fields[outer]


def _is_tried(field: Field) -> bool:
    return not field.setting.operational and field.name not in NOT_SEARCHED


def _dimension(field: Field, name: str, entry: Mapping[str, Any]) -> Dimension:
    if set(entry) == {"choices"}:
        return _choice(name, entry)
    if unknown := set(entry) - _RANGE - {"choices"}:
        odd = sorted(unknown)[0]
        raise _refused(name, entry, f"it has no {odd!r}", nearest(odd, _RANGE | {"choices"}))
    if "choices" in entry or not {"low", "high"} <= set(entry):
        raise _refused(
            name, entry, "it is neither a range nor choices", "Give low and high, or choices alone."
        )
    if field.kind not in (int, float, dict) or (field.name == name and field.kind is dict):
        raise _refused(name, entry, f"{name} is no number", 'Give {"choices": [...]}.')
    low, high = entry["low"], entry["high"]
    step, log = entry.get("step"), entry.get("log", False)
    numbers = [low, high] + [step] * (step is not None)
    if not all(_is_number(number) for number in numbers):
        raise _refused(name, entry, "an end or step is no finite number", "Give numbers.")
    if not isinstance(log, bool):
        raise _refused(name, entry, "log is neither true nor false", "Give true or false.")
    if low > high:
        raise _refused(name, entry, "low is above high", "Swap them.")
    if step is not None and (step <= 0 or log):
        problem = "log and step exclude each other" if log else "step is not above 0"
        raise _refused(name, entry, problem, "Leave step out, or give one above 0 without log.")
    if not math.isfinite(float(high) - float(low)):
        raise _refused(name, entry, "its range is wider than numbers are", "Narrow it.")
    if step is not None and not 1 <= (high - low) / step <= _MOST_STEPS:
        raise _refused(
            name,
            entry,
            "its range is less than a step, or more steps than numbers can tell apart",
            "Leave step out, or give another one.",
        )
    if log and low <= 0:
        raise _refused(name, entry, "0 and less have no logarithm", "Raise low, or leave log out.")
    if field.kind is int and any(number % 1 for number in numbers):
        raise _refused(name, entry, f"{name} is a whole number", "Give whole numbers.")
    whole = field.kind is int or (
        field.kind is dict and name not in _REAL and all(isinstance(n, int) for n in numbers)
    )
    if whole and high - low > _MOST_STEPS:
        raise _refused(
            name,
            entry,
            "it has more whole numbers than can be told apart",
            "Narrow it, or write its ends as 1.0, which makes them real.",
        )
    if step is not None:  # the last that steps from low reach
        first, each = _exact(low), _exact(step)
        high = float(first + (_exact(high) - first) // each * each)
    kind = int if whole else float
    return Dimension(
        name=name,
        low=kind(low),
        high=kind(high),
        step=None if step is None else kind(step),
        log=log,
        whole=whole,
    )


def _exact(number: float) -> Decimal:
    """A number as it is written: tenths are tenths."""
    return Decimal(str(number))


def _choice(name: str, entry: Mapping[str, Any]) -> Dimension:
    values = entry["choices"]
    if not isinstance(values, list | tuple) or not values:
        raise _refused(
            name, entry, "choices is no list with values", "Give a list, such as [1, 2]."
        )
    dimension = Dimension(name=name, choices=tuple(values))
    if len(dimension.labels) < len(values):
        raise _refused(name, entry, "a choice repeats", "Name each once.")
    return dimension


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= LARGEST


def _refused(name: str, entry: Any, problem: str, fix: str) -> SettingError:
    shown = dict(entry) if isinstance(entry, Mapping) else entry
    return SettingError("space", {name: shown}, problem, fix)
