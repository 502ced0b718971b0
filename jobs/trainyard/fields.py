"""One setting of a contract: its type, default, bounds and help, and how its values are read."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Union, get_args, get_origin

from trainyard.errors import SettingError, nearest

_METADATA = "setting"

LARGEST = 2**63 - 1
"""The largest whole number that every reader of a setting can hold."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is known of one setting besides its type and default.

    Attributes:
        help: one sentence for `--help` and the trigger form.
        minimum: smallest value allowed, inclusive; for a list, of each item.
        maximum: largest value allowed, inclusive.
        above: bound that the value must exceed.
        below: bound that the value must stay under.
        choices: the only values allowed.
        section: heading under which forms and `--help` show it.
        template: what stands for it where a DAG leaves it to the operator; a command line needs
            it.
        multiline: whether a text may have several lines.
        operational: whether it says how or where the work is done, and not what comes of it.
        search: range that a search over hyperparameters takes unless it is told another one; of a
            mapping, the ranges of members by name. See `spaces`.
    """

    help: str
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] | None = None
    section: str = "Settings"
    template: str | None = None
    multiline: bool = False
    operational: bool = False
    search: Mapping[str, Any] | None = None

    def check(self, name: str, value: Any) -> None:
        """Raise `SettingError` when a value breaks a bound or is not among the choices."""
        for item in value if isinstance(value, tuple) else (value,):
            self._check_item(name, item)

    def _check_item(self, name: str, value: Any) -> None:
        if self.choices is not None and value not in self.choices:
            raise SettingError(
                name, value, "it is not a known choice", nearest(value, self.choices)
            )
        if self.minimum is not None and value < self.minimum:
            raise SettingError(name, value, "it is too small", f"Use {self.minimum} or more.")
        if self.maximum is not None and value > self.maximum:
            raise SettingError(name, value, "it is too large", f"Use {self.maximum} or less.")
        if self.above is not None and value <= self.above:
            raise SettingError(name, value, "it is too small", f"Use more than {self.above}.")
        if self.below is not None and value >= self.below:
            raise SettingError(name, value, "it is too large", f"Use less than {self.below}.")


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str,  # noqa: A002 - argparse's word
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Sequence[str] | None = None,
    section: str = "Settings",
    template: str | None = None,
    multiline: bool = False,
    operational: bool = False,
    search: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a field of a contract, required unless it has a default; see `Setting`."""
    described = Setting(
        help=help,
        minimum=minimum,
        maximum=maximum,
        above=above,
        below=below,
        choices=tuple(choices) if choices is not None else None,
        section=section,
        template=template,
        multiline=multiline,
        operational=operational,
        search=search,
    )
    if template is not None:
        default = template
    metadata = {_METADATA: described}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Field:
    """One setting of a contract with its name, type and default resolved.

    Attributes:
        kind: `str`, `int`, `float`, `bool`, `tuple` or `dict`.
        item: type of a tuple's items.
        optional: whether `None` is allowed; then it is the default too.
        default: the default, or `dataclasses.MISSING` for a required setting.
    """

    name: str
    kind: type
    item: type
    optional: bool
    default: Any
    setting: Setting

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def required(self) -> bool:
        """Whether the setting has no default."""
        return self.default is dataclasses.MISSING

    def convert(self, value: Any) -> Any:
        """Return `value` as the field's kind, checked against its bounds; a template stays.

        Text is read as a person or a rendered template would write it: numbers, `true`, JSON or
        Python literals for lists and mappings, comma-separated lists.

        Raises:
            SettingError: the value is of another type or out of bounds.
        """
        try:
            if is_template(value):
                return value
            if self.optional and (value is None or (value in ("", "None", "null"))):
                return None
            converted = _CONVERTERS[self.kind](self, value)
        except RecursionError:
            raise SettingError(
                self.name, value, "it is nested too deeply", "Give fewer lists in lists."
            ) from None
        self.setting.check(self.name, converted)
        return converted

    def fail(self, value: Any, wanted: str) -> NoReturn:
        """Raise the error that says what type was wanted."""
        raise SettingError(self.name, value, f"it is not {wanted}", f"Give {wanted}.")


def is_template(value: Any) -> bool:
    """Whether a value still holds an Airflow template, itself or in a list or mapping."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(is_template(item) for item in value.values())
    return isinstance(value, list | tuple) and any(is_template(item) for item in value)


def _to_str(field: Field, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        field.fail(value, "text")
    try:
        text = str(value)
    except ValueError:  # a number of thousands of digits
        field.fail(value, "text")
    if not text.strip():
        raise SettingError(field.name, text, "it is empty", f"Give a value: {field.setting.help}")
    if "\0" in text or ("\n" in text and not field.setting.multiline):
        raise SettingError(
            field.name, text, "it holds a control character", "Remove the character."
        )
    return text


def _to_int(field: Field, value: Any) -> int:
    number = value
    if isinstance(value, str):
        try:
            number = int(value.strip())
        except ValueError:
            field.fail(value, "a whole number")
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number // 1:
        field.fail(value, "a whole number")
    if abs(number) > LARGEST:
        field.fail(value, "a whole number of 64 bits")
    return int(number)


def _to_float(field: Field, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        field.fail(value, "a number")
    try:
        number = float(value)
    except ValueError:
        field.fail(value, "a number")
    except OverflowError:
        field.fail(value, "a finite number")
    if not math.isfinite(number):
        field.fail(value, "a finite number")
    return number


def _to_bool(field: Field, value: Any) -> bool:
    known = {"true": True, "false": False}
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    if not isinstance(value, bool):
        field.fail(value, "true or false")
    return value


def _to_tuple(field: Field, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        text = value.strip()
        value = _literal(field, text) if text[:1] in ("[", "(") else text.split(",") if text else []
    if not isinstance(value, list | tuple):
        field.fail(value, "a list")
    item = dataclasses.replace(field, kind=field.item, optional=False)
    convert = _CONVERTERS[field.item]
    return tuple(convert(item, v.strip() if isinstance(v, str) else v) for v in value)


def _to_dict(field: Field, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = _literal(field, value.strip() or "{}")
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        field.fail(value, 'a mapping such as {"name": 0.5}')
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError):
        field.fail(value, "a mapping of plain JSON values")
    if _is_deeper(plain, 50):
        raise RecursionError  # sooner than in all that will look through it
    return plain


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    deep = isinstance(value, dict | list)
    return deep and (levels == 0 or any(_is_deeper(item, levels - 1) for item in inner))


def _literal(field: Field, text: str) -> Any:
    repeated: list[str] = []  # of a name that repeats, json would silently take the last value

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            repeated.extend([name] * (name in found))
            found[name] = value
        return found

    try:
        literal = json.loads(text, object_pairs_hook=read)
    except ValueError:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            field.fail(text, "a list or mapping in JSON")
    if repeated:
        raise SettingError(field.name, text, f"it has {repeated[0]!r} twice", "Name each once.")
    return literal


_CONVERTERS: dict[type, Any] = {
    str: _to_str,
    int: _to_int,
    float: _to_float,
    bool: _to_bool,
    tuple: _to_tuple,
    dict: _to_dict,
}


def resolve(field: dataclasses.Field[Any], hint: Any) -> Field:
    """Read a dataclass field that `setting` declared."""
    arms = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    optional = type(None) in arms
    (kind,) = (arm for arm in arms if arm is not type(None))
    base = get_origin(kind) or kind
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    described: Setting = field.metadata[_METADATA]
    if described.template is not None:
        default = dataclasses.MISSING
    if base not in _CONVERTERS or (optional and default is not None):
        raise TypeError(f"{field.name}: a contract cannot hold {hint} with default {default!r}")
    return Field(
        name=field.name,
        kind=base,
        item=get_args(kind)[0] if base is tuple else base,
        optional=optional,
        default=default,
        setting=described,
    )
