"""A Spark ML estimator's parameters as a table: each line gives a Param, a getter, a setter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters

from trainyard.errors import SettingError, nearest

Class = TypeVar("Class", bound="type[Tuned]")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One parameter.

    Attributes:
        name: of the Param and the constructor's argument.
        doc: what it says, for `explainParams`.
        default: its value where none is given.
        convert: makes a given value one of its type, or raises TypeError; None stays None.
        accessor: what follows `get` and `set`; by default the name in camel case.
        refused: why another value than the default is refused, and what to do.
        is_saved: whether it is written with the estimator.
    """

    name: str
    doc: str
    default: Any = None
    convert: Callable[[Any], Any] = TypeConverters.identity
    accessor: str = ""
    refused: tuple[str, str] | None = None
    is_saved: bool = True

    @property
    def method(self) -> str:
        """What follows `get` and `set` in its methods' names."""
        if self.accessor:
            return self.accessor
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("_"))

    def param(self) -> Param[Any]:
        """The Param that stands for it in a class."""
        convert = self.convert
        passing = lambda value: None if value is None else convert(value)  # noqa: E731
        return Param(Params._dummy(), self.name, self.doc, typeConverter=passing)


class Tuned(Params):
    """Has the parameters of its class's table; made by `tuned`."""

    table: ClassVar[dict[str, Setting]] = {}

    old_names: ClassVar[dict[str, tuple[str, str]]] = {}
    """Names of other libraries that are no parameter here: why, and what to use instead."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The Params, getters and setters that the table gives."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._setDefault(**{setting.name: setting.default for setting in self.table.values()})
        self.setParams(**values)

    def setParams(self, **values: Any) -> Any:  # noqa: N802 - Spark ML's own name
        """Set parameters by name.

        Raises:
            SettingError: there is none of that name, or this value of it is refused.
        """
        return self._set(**values)

    def value(self, name: str) -> Any:
        """A parameter's value."""
        return self.getOrDefault(name)

    def check(self) -> None:
        """Raise `SettingError` for values that are refused, however they were set."""
        for name in self.table:
            self._check(name, self.value(name))

    def _set(self, **values: Any) -> Any:
        for name, value in values.items():
            self._check(name, value)
        return super()._set(**values)

    def _check(self, name: str, value: Any) -> None:
        who = type(self).__name__
        if name in self.old_names:
            problem, fix = self.old_names[name]
            raise SettingError(name, value, f"{who} has no such parameter: {problem}", fix)
        if name not in self.table:
            problem = f"{who} has no such parameter"
            # A misplaced one may well be a key or a token.
            raise SettingError(name, "(hidden)", problem, nearest(name, self.table))
        setting = self.table[name]
        if setting.refused and value is not None and value != setting.default:
            raise SettingError(name, value, *setting.refused)


def tuned(*settings: Setting) -> Callable[[Class], Class]:
    """Give a class the parameters of a table, beside those of its base."""

    def give(cls: Class) -> Class:
        cls.table = {**cls.table, **{setting.name: setting for setting in settings}}
        for setting in settings:
            setattr(cls, setting.name, setting.param())
            methods = {f"get{setting.method}": _getter, f"set{setting.method}": _setter}
            for name, make in methods.items():
                if name not in vars(cls):
                    setattr(cls, name, make(setting))
        return cls

    return give


def _getter(setting: Setting) -> Callable[[Tuned], Any]:
    def get(self: Tuned) -> Any:
        return self.value(setting.name)

    get.__doc__ = f"The value of `{setting.name}`."
    return get


def _setter(setting: Setting) -> Callable[[Tuned, Any], Any]:
    def put(self: Tuned, value: Any) -> Any:
        return self._set(**{setting.name: value})

    put.__doc__ = f"Set `{setting.name}`: {setting.doc}."
    return put


def whole(least: int = 1) -> Callable[[Any], int]:
    """A converter for whole numbers of at least so much."""

    def convert(value: Any) -> int:
        number: int = TypeConverters.toInt(value)
        if number < least:
            raise TypeError(f"it must be {least} or more, not {number}")
        return number

    return convert


def listed(value: Any) -> list[Any]:
    """A converter for a list, or the one item of it."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
