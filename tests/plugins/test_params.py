"""The trigger form: what it offers, and that its values come back as the contract's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import ParamValidationError
from hypothesis import given
from hypothesis import strategies as st

from trainyard.contract import Contract, setting
from trainyard.errors import SettingError
from trainyard.specs import JOBS, Evaluate, TrainHorovod
from trainyard_airflow.params import by_choice, combine, param, result, trigger_params


@dataclass(frozen=True, kw_only=True)
class Everything(Contract):
    """One setting of each kind."""

    job = "everything"

    text: str = setting("a", help="Text.")
    maybe: str | None = setting(None, help="Text or none.")
    choice: str = setting("a", choices=("a", "b"), help="A choice.")
    whole: int = setting(3, minimum=1, maximum=9, help="Whole.")
    real: float = setting(0.5, above=0.0, below=1.0, help="Real.")
    flag: bool = setting(True, help="Flag.")
    numbers: tuple[int, ...] = setting((1, 2), minimum=1, help="Numbers.")
    names: tuple[str, ...] = setting(("x",), help="Names.")
    mapping: dict[str, object] = setting({"a": 1}, help="Mapping.")


FORM = trigger_params(Everything, *(field.name for field in Everything.settings()))


def rendered(values: dict[str, Any]) -> dict[str, Any]:
    """Values as a task gets them from the form, through Airflow's own rendering."""
    with DAG("rendering"):
        operator = BaseOperator(task_id="task")
    template = {name: param(name) for name in values}
    context: Any = {"params": values}
    answer: dict[str, Any] = operator.render_template(template, context)
    return answer


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
filled = texts.filter(lambda text: text.strip() == text and text)


@given(
    text=filled,
    maybe=st.none() | filled.filter(lambda text: text not in ("None", "null")),
    choice=st.sampled_from("ab"),
    whole=st.integers(1, 9),
    real=st.floats(0.001, 0.999),
    flag=st.booleans(),
    numbers=st.lists(st.integers(1, 99), max_size=4),
    names=st.lists(filled, max_size=4),
    mapping=st.dictionaries(texts, plain | texts | st.lists(plain | texts, max_size=3), max_size=4),
)
def test_what_the_form_gives_comes_back_through_rendering(**values: Any) -> None:
    if any("{{" in str(v) or "{%" in str(v) for v in values.values()):
        return  # a value that is a template itself is not one
    form = {name: FORM[name].resolve(value) for name, value in values.items()}
    assert Everything.from_mapping(rendered(form)) == Everything(**values)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", ""),
        ("text", 3),
        ("choice", "c"),
        ("whole", 0),
        ("whole", 10),
        ("whole", 1.5),
        ("real", 0),
        ("real", 1),
        ("flag", "true"),
        ("numbers", [0]),
        ("numbers", "1"),
        ("names", [1]),
        ("mapping", []),
    ],
)
def test_the_form_refuses_what_the_contract_refuses(name: str, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        FORM[name].resolve(value)


@pytest.mark.parametrize("job", JOBS)
def test_every_default_of_every_job_passes_its_own_form(job: type[Contract]) -> None:
    optional = [field.name for field in job.settings() if not field.required]
    assert optional
    for field in trigger_params(job, *optional).values():
        assert field.resolve() == field.value
        assert field.description
        assert field.schema["section"]
        assert field.schema["title"]


def test_a_dag_chooses_its_own_default() -> None:
    form = trigger_params(TrainHorovod, "ranks", epochs=7)
    assert (form["ranks"].value, form["epochs"].value) == (2, 7)
    assert form["epochs"].schema["maximum"] == 100_000


@pytest.mark.parametrize(
    ("names", "defaults", "message"),
    [
        (["epoch"], {}, "Did you mean 'epochs'"),
        ([], {"epoch": 3}, "Did you mean 'epochs'"),
        ([], {"epochs": 0}, "too small"),
        (["dataset"], {}, "has no default"),
    ],
)
def test_a_wrong_form_is_refused(names: list[str], defaults: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        trigger_params(TrainHorovod, *names, **defaults)


def test_two_jobs_with_a_setting_of_one_name_need_a_prefix() -> None:
    train = trigger_params(TrainHorovod, "batch_size")
    with pytest.raises(ValueError, match="'batch_size'"):
        combine(train, trigger_params(Evaluate, "batch_size"))
    both = combine(train, trigger_params(Evaluate, "batch_size", prefix="evaluate_"))
    assert {name: field.value for name, field in both.items()} == {
        "batch_size": 128,
        "evaluate_batch_size": 512,
    }


def test_a_result_is_read_by_its_path() -> None:
    with DAG("rendering"):
        operator = BaseOperator(task_id="task")

    class Ti:
        def xcom_pull(self, task_ids: str) -> Any:
            return {"prepare": {"outputs": {"it's": "here"}}}[task_ids]

    context: Any = {"ti": Ti()}
    assert operator.render_template(result("prepare", "outputs", "it's"), context) == "here"


def test_a_value_by_a_choice_in_the_form() -> None:
    with DAG("rendering"):
        operator = BaseOperator(task_id="task")
    bound = by_choice("task", classification=param("minimum"), regression=None)
    name = by_choice("task", classification="it's", regression=7)

    def rendered(task: str) -> list[Any]:
        context: Any = {"params": {"task": task, "minimum": 0.7}}
        return [operator.render_template(template, context) for template in (bound, name)]

    assert rendered("classification") == ["0.7", "it's"]
    assert rendered("regression") == ["None", "7"]
