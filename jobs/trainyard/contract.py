"""The contract of a job: one dataclass gives its flags, its argv, its trigger form and its record.

A job's settings are declared once, as a frozen keyword-only dataclass that derives from `Contract`:

    @dataclass(frozen=True, kw_only=True)
    class Count(Contract):
        "Count the rows of a table."
        job = "count"
        source: str = setting(help="Table to count.")
        limit: int = setting(10, minimum=1, help="Rows to read at most.")

`Count.parser()` reads what `Count(...).argv()` writes; Airflow builds its trigger form from
`Count.settings()`. Values may be Airflow templates (`{{ ... }}`) until they are rendered: a
templated value is let through unchecked, and `Count.from_mapping(rendered)` checks it. Only the
standard library is imported here, so that Airflow's processes stay light.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NoReturn, Self, get_type_hints

from trainyard.errors import PASSWORD, SettingError, nearest
from trainyard.fields import Field, is_template, resolve, setting

__all__ = ["Contract", "Field", "is_template", "setting"]


@dataclass(frozen=True, kw_only=True)
class Contract:
    """Base of every job's settings; see the module for how to declare one.

    Raises:
        SettingError: on construction, when a value that is not a template is not allowed.
    """

    job: ClassVar[str]
    """Name of the job; its program is `<job>.py`."""

    old_names: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Names of other tools that are no setting here: why, and what to use instead."""

    def __new__(cls, **values: Any) -> Self:
        """Refuse an old name; the dataclass refuses any other that it does not know."""
        for name, value in values.items():
            if name in cls.old_names:
                raise cls._unknown(name, value)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in self.settings():
            value = field.convert(getattr(self, field.name))
            if PASSWORD.search(str(value)):
                raise SettingError(
                    field.name,
                    "(hidden)",
                    "its URI holds a password, which would be recorded and logged",
                    "Give credentials by environment, or by Spark's configuration.",
                )
            object.__setattr__(self, field.name, value)
        if not self.templated:
            self.check()

    def check(self) -> None:
        """Raise `SettingError` when settings contradict; called once none is a template."""

    @property
    def templated(self) -> bool:
        """Whether any setting still holds a template."""
        return any(is_template(value) for value in self.to_mapping().values())

    @classmethod
    @cache
    def settings(cls) -> tuple[Field, ...]:
        """The settings in the order of their declaration."""
        hints = get_type_hints(cls)
        return tuple(resolve(field, hints[field.name]) for field in dataclasses.fields(cls))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Build from names and values, refusing an unknown or missing name.

        Raises:
            SettingError: a name is unknown or missing, or a value is not allowed.
        """
        names = {field.name: field for field in cls.settings()}
        for name, value in values.items():
            if name not in names:
                raise cls._unknown(name, value)
        for field in names.values():
            if field.required and field.name not in values:
                raise SettingError(
                    field.name, None, f"{cls.job} needs it", f"Set it: {field.setting.help}"
                )
        return cls(**values)

    @classmethod
    def _unknown(cls, name: str, value: Any) -> SettingError:
        if name in cls.old_names:
            problem, fix = cls.old_names[name]
            return SettingError(name, value, f"{cls.job} has no such setting: {problem}", fix)
        known = [field.name for field in cls.settings()]
        return SettingError(name, value, f"{cls.job} has no such setting", nearest(name, known))

    def to_mapping(self) -> dict[str, Any]:
        """The settings as plain JSON values, in the order of their declaration."""
        values = {field.name: getattr(self, field.name) for field in self.settings()}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    def decisive(self) -> dict[str, Any]:
        """Those of `to_mapping` that another result would follow from: none that is operational."""
        operational = {field.name for field in self.settings() if field.setting.operational}
        return {k: v for k, v in self.to_mapping().items() if k not in operational}

    def argv(self) -> list[str]:
        """The command-line arguments that `parse` reads back to an equal contract.

        Raises:
            SettingError: a setting still holds a template.
        """
        return list(self._flags())

    def _flags(self) -> Iterator[str]:
        for field in self.settings():
            value = getattr(self, field.name)
            _refuse_template(field.name, value)
            if value is None:
                continue
            if field.kind is bool:
                yield field.flag if value else "--no-" + field.flag[2:]
            elif field.kind in (tuple, dict):
                yield f"{field.flag}={json.dumps(value)}"
            else:
                yield f"{field.flag}={value}"

    @classmethod
    def parser(cls) -> argparse.ArgumentParser:
        """The job's command-line parser."""
        parser = _Parser(
            prog=f"{cls.job}.py",
            description=cls.__doc__,
            allow_abbrev=False,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        groups: dict[str, Any] = {}
        for field in cls.settings():
            section = field.setting.section
            group = groups.setdefault(section, None) or parser.add_argument_group(section)
            groups[section] = group
            default = argparse.SUPPRESS if field.required else field.default
            options: dict[str, Any] = {"help": _flag_help(field), "default": default}
            if field.kind is bool:
                options["action"] = argparse.BooleanOptionalAction
            else:
                options["metavar"] = _metavar(field)
            group.add_argument(field.flag, **options)
        return parser

    @classmethod
    def parse(cls, argv: Sequence[str]) -> Self:
        """Read the command line.

        Raises:
            SettingError: a flag is unknown or missing, or its value is not allowed.
        """
        parsed, unknown = cls.parser().parse_known_args(argv)
        if unknown:
            flag, _, value = unknown[0].partition("=")
            flags = [field.flag for field in cls.settings()]
            if (name := flag.lstrip("-").replace("-", "_")) in cls.old_names:
                raise cls._unknown(name, value)
            raise SettingError(
                flag, unknown[0], f"{cls.job}.py has no such flag", nearest(flag, flags)
            )
        for name, value in vars(parsed).items():
            _refuse_template(name, value)
        return cls.from_mapping(vars(parsed))


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are `SettingError`s."""

    def error(self, message: str) -> NoReturn:
        raise SettingError("command line", message, "it cannot be read", f"See {self.prog} --help.")


def _refuse_template(name: str, value: Any) -> None:
    if is_template(value):
        raise SettingError(name, value, "it was not rendered", "Give the value itself.")


def _flag_help(field: Field) -> str:
    choices = field.setting.choices
    text = field.setting.help + (f" One of: {', '.join(choices)}." if choices else "")
    text += " Required." if field.required else ""
    return text.replace("%", "%%")


def _metavar(field: Field) -> str:
    names: dict[type, str] = {str: "TEXT", int: "N", float: "X", tuple: "LIST", dict: "JSON"}
    return names[field.kind]
