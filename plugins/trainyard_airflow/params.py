"""From a job's contract to the trigger form of a DAG, and from the form back into a contract.

params = combine(
    trigger_params(TrainHorovod, "ranks", "batch_size", epochs=25),
    trigger_params(Evaluate, "batch_size", prefix="evaluate_"),
)
train = SparkJobOperator(
    task_id="train",
    job=TrainHorovod(dataset=result("prepare", "outputs", "dataset"), epochs=param("epochs"), ...),
)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow.sdk import Param

from trainyard.contract import Contract, Field
from trainyard.errors import SettingError, nearest
from trainyard_airflow.gate import MODES

_JSON_TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    tuple: "array",
    dict: "object",
}


def trigger_params(
    contract: type[Contract], *names: str, prefix: str = "", **defaults: Any
) -> dict[str, Param]:
    """Fields of the trigger form for settings of a job.

    Args:
        contract: the job's settings.
        names: settings to show with the contract's own default.
        prefix: put before each name in the form, where two jobs have a setting of one name.
        defaults: settings to show with another default than the contract's.

    Raises:
        SettingError: the contract has no such setting, or does not allow the default.
    """
    fields = {field.name: field for field in contract.settings()}
    form: dict[str, Param] = {}
    for name in (*names, *defaults):
        if name not in fields:
            raise SettingError(
                name, name, f"{contract.job} has no such setting", nearest(name, fields)
            )
        field = fields[name]
        if field.required and name not in defaults:
            raise SettingError(
                name, None, f"{contract.job} has no default for it", f"Give one: {name}=..."
            )
        form[prefix + name] = _param(field, defaults.get(name, field.default))
    return form


def combine(*forms: Mapping[str, Param]) -> dict[str, Param]:
    """One trigger form from several, refusing two fields of one name.

    Raises:
        ValueError: naming the field that two forms have.
    """
    combined: dict[str, Param] = {}
    for form in forms:
        for name, field in form.items():
            if name in combined:
                raise ValueError(
                    f"two trigger forms have a field {name!r}; give one of them a prefix"
                )
            combined[name] = field
    return combined


def gate_params(metric: str, *, minimum: float, margin: float = 0.0) -> dict[str, Param]:
    """Fields of the form: `minimum_METRIC`, `margin_METRIC`, `gate_paired` and `gate_mode`."""
    bounds = {
        f"minimum_{metric}": (minimum, f"The worst {metric} with which a model may serve."),
        f"margin_{metric}": (margin, f"By how much its {metric} must beat the champion's."),
    }
    form = {
        name: Param(
            value,
            type="number",
            minimum=0,
            title=_title(name),
            section="Gate",
            description=description,
        )
        for name, (value, description) in bounds.items()
    }
    form["gate_paired"] = Param(
        False,
        type="boolean",
        title=_title("gate_paired"),
        section="Gate",
        description="Whether the margin must hold at the unfavourable end of the gain's interval.",
    )
    form["gate_mode"] = Param(
        MODES[0],
        type="string",
        enum=list(MODES),
        title=_title("gate_mode"),
        section="Gate",
        description="Whether the verdict counts; a dry run promotes nothing.",
    )
    return form


def param(name: str) -> Any:
    """The template that a field of the trigger form is read with."""
    return f"{{{{ params.{name} }}}}"


def event_or_param(name: str) -> Any:
    """The template of what the event that triggered a run says, or else a field of the form.

    The DAG needs `user_defined_macros={"from_event": from_event}`.
    """
    return f"{{{{ from_event(triggering_asset_events, {name!r}) or params.{name} }}}}"


def from_event(events: Mapping[Any, Sequence[Any]], name: str) -> Any:
    """What the extra of an asset's latest event holds under a name, or None.

    Args:
        events: the events that triggered a run, by their asset, each in order; none for a run by
            hand.
        name: key of the extra.
    """
    extras = (event.extra for found in events.values() for event in reversed(found))
    return next((extra[name] for extra in extras if name in extra), None)


def by_choice(name: str, **values: Any) -> Any:
    """The template of a value that depends on a choice in the trigger form.

    Args:
        name: the field, such as `task`.
        values: for each of its choices a text, a number, None, or what `param` gives.
    """
    cases = (f"{case!r}: {_expression(value)}" for case, value in values.items())
    return f"{{{{ dict({{{', '.join(cases)}}})[params.{name} ] }}}}"


def result(task_id: str, *path: str) -> Any:
    """The template that reads a value of an earlier task's result.

    Args:
        task_id: the task that returned the result.
        path: keys from the outside in, such as `"outputs", "dataset"`.
    """
    keys = "".join(f"[{key!r}]" for key in path)
    return f"{{{{ ti.xcom_pull(task_ids={task_id!r}){keys} }}}}"


def _expression(value: Any) -> str:
    is_template = isinstance(value, str) and value.startswith("{{")
    return value[2:-2] if is_template else "none" if value is None else repr(value)


def _param(field: Field, default: Any) -> Param:
    value = field.convert(default)
    return Param(
        list(value) if isinstance(value, tuple) else value,
        description=field.setting.help,
        title=_title(field.name),
        section=field.setting.section,
        **_schema(field),
    )


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _schema(field: Field) -> dict[str, Any]:
    kind = _JSON_TYPES[field.kind]
    schema: dict[str, Any] = {"type": [kind, "null"] if field.optional else kind}
    if field.kind is tuple:
        item = dataclasses.replace(field, kind=field.item, optional=False)
        return schema | {"items": _schema(item)}
    if field.setting.choices is not None:
        schema["enum"] = [*field.setting.choices, *([None] if field.optional else [])]
    elif field.kind is str and not field.optional:
        schema["minLength"] = 1
    if field.setting.multiline:
        schema["format"] = "multiline"
    return schema | dict(_bounds(field))


def _bounds(field: Field) -> Iterable[tuple[str, float]]:
    limits = {
        "minimum": field.setting.minimum,
        "maximum": field.setting.maximum,
        "exclusiveMinimum": field.setting.above,
        "exclusiveMaximum": field.setting.below,
    }
    return ((keyword, limit) for keyword, limit in limits.items() if limit is not None)
