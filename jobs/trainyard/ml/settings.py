"""A Spark ML estimator's parameters as a table: each line gives a Param, a getter, a setter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyspark.ml.param import Param, Params

from trainyard.errors import SettingError, nearest
from trainyard.ml.parameter import Setting

Class = TypeVar("Class", bound="type[Tuned]")


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
            setattr(cls, setting.name, _param(setting))
            methods = {f"get{setting.method}": _getter, f"set{setting.method}": _setter}
            for name, make in methods.items():
                if name not in vars(cls):
                    setattr(cls, name, make(setting))
        return cls

    return give


def _param(setting: Setting) -> Param[Any]:
    def passing(value: Any) -> Any:
        return None if value is None else setting.convert(value)

    return Param(Params._dummy(), setting.name, setting.doc, typeConverter=passing)


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
