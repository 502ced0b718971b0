"""The contract: what is written to a command line is read back, and nothing wrong gets through."""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainyard.contract import Field
from trainyard.errors import SettingError
from trainyard.optimizers import OPTIMIZER_PARAMS
from trainyard.specs import (
    JOBS,
    EstimatorTutorial,
    Evaluate,
    Predict,
    Prepare,
    RunDirectory,
    TrainHorovod,
    TrainXGBoost,
    Tune,
)

TRAIN: dict[str, Any] = {"run_dir": "/r", "dataset": "/d", "model_name": "m"}
PREPARE: dict[str, Any] = {
    "run_dir": "/r",
    "source": "sample:mnist",
    "features": ["pixels"],
    "label": "digit",
}

texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\n{"), min_size=1
).filter(str.strip)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
SPECIAL = {
    "network": st.sampled_from(["a:B", "trainyard.networks.mnist:ConvNet"]),
    "optimizer_params": st.just({}),
    "booster_params": st.sampled_from([{}, {"subsample": 0.5, "max_leaves": 8}]),
    "objective": st.sampled_from(["auto", "multi:softprob"]),
    "metrics": st.sampled_from([(), ("logloss", "error@0.7")]),
    "class_weights": st.sampled_from(["none", "balanced", "1,2.5"]),
    "model_name": st.sampled_from(["digits", "flight-delays.v2_a"]),
    "study": st.sampled_from([None, "/studies/ü b", "s3://bucket/studies"]),
    "allowed_hosts": st.sampled_from([(), ("images.example.com", "h:8080")]),
}

# Settings that must agree with each other; what contradicts is another test's matter.
AGREEING: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "prepare": st.sampled_from(
        [
            {
                "source": "/data/a b.csv",
                "tables": {},
                "query": None,
                "split_by": "hash",
                "split_column": None,
                "validation_from": None,
                "test_from": None,
                "holdout_from": None,
                "stratify": True,
                "task": "classification",
            },
            {
                "source": None,
                "format": "auto",
                "tables": {"flights": "/data/ü.csv", "b": "sample:mnist"},
                "query": "SELECT * FROM flights",
                "split_by": "time",
                "split_column": "when",
                "validation_from": None,
                "test_from": "2013-10-01",
                "holdout_from": "2013-12-01",
                "stratify": False,
                "task": "regression",
            },
        ]
    ),
    "train_xgboost": st.sampled_from([{"max_depth": 1}, {"max_depth": 6}]),
    "tune": st.sampled_from(
        [
            {
                "engine": "horovod",
                "space": {},
                "fixed": {"epochs": 3},
                "metric": "auto",
                "direction": "auto",
            },
            {
                "engine": "xgboost",
                "space": {"booster_params.subsample": {"low": 0.5, "high": 1}, "max_depth": {}},
                "fixed": {"rounds": 20},
                "metric": "validation_auc",
                "direction": "maximize",
            },
        ]
    ),
    "train_horovod": st.sampled_from(
        [{"epochs": 1, "warmup_epochs": 0}, {"epochs": 5, "warmup_epochs": 2}]
    ),
}


def scalars(field: Field, kind: type) -> st.SearchStrategy[Any]:
    described = field.setting
    if kind is str:
        return st.sampled_from(described.choices) if described.choices else texts
    if kind is bool:
        return st.booleans()
    low = described.minimum if described.above is None else described.above
    high = described.maximum if described.below is None else described.below
    if kind is int:
        bits = 2**63 - 1
        return st.integers(-bits if low is None else int(low), bits if high is None else int(high))
    return st.floats(
        low,
        high,
        allow_nan=False,
        allow_infinity=False,
        exclude_min=described.above is not None,
        exclude_max=described.below is not None,
    )


def values(field: Field) -> st.SearchStrategy[Any]:
    if field.name in SPECIAL:
        return SPECIAL[field.name]
    if field.kind is tuple:
        items: st.SearchStrategy[Any] = st.lists(scalars(field, field.item), max_size=4).map(tuple)
    elif field.kind is dict:
        items = st.dictionaries(texts, plain, max_size=3)
    else:
        items = scalars(field, field.kind)
    return st.none() | items if field.optional else items


@st.composite
def specs(draw: st.DrawFn) -> RunDirectory:
    job = draw(st.sampled_from(JOBS))
    given_values = {field.name: draw(values(field)) for field in job.settings()}
    given_values |= draw(AGREEING.get(job.job, st.just({})))
    try:
        return job(**given_values)
    except SettingError as error:
        assume(error.name not in {"validation_fraction", "features", "categorical", "keep"})
        raise


@given(specs())
def test_argv_is_read_back(spec: RunDirectory) -> None:
    assert type(spec).parse(spec.argv()) == spec


@given(specs())
def test_the_record_is_read_back(spec: RunDirectory) -> None:
    assert type(spec).from_mapping(json.loads(json.dumps(spec.to_mapping()))) == spec


def numeric(job: type[RunDirectory]) -> list[tuple[type[RunDirectory], Field, float]]:
    beyond = []
    for field in job.settings():
        kind = field.item if field.kind is tuple else field.kind
        step = 1 if kind is int else 0.5
        bounds = field.setting
        for value in (
            None if bounds.minimum is None else bounds.minimum - step,
            None if bounds.maximum is None else bounds.maximum + step,
            bounds.above,
            bounds.below,
        ):
            if value is not None:
                beyond.append((job, field, kind(value)))
    return beyond


BEYOND = [case for job in JOBS for case in numeric(job)]
REQUIRED: dict[type[RunDirectory], dict[str, Any]] = {
    Prepare: PREPARE,
    TrainHorovod: TRAIN,
    TrainXGBoost: TRAIN,
    Evaluate: {"run_dir": "/r", "dataset": "/d", "model": "/m"},
    Predict: {"run_dir": "/r", "source": "/s", "model": "/m"},
    Tune: {"run_dir": "/r", "dataset": "/d"},
    EstimatorTutorial: {"run_dir": "/r"},
}


def test_there_are_bounds() -> None:
    assert len(BEYOND) > 20


@pytest.mark.parametrize(("job", "field", "value"), BEYOND)
def test_a_value_beyond_a_bound_is_refused(
    job: type[RunDirectory], field: Field, value: float
) -> None:
    given_value = [value] if field.kind is tuple else value
    with pytest.raises(SettingError, match="too") as caught:
        job.from_mapping({**REQUIRED[job], field.name: given_value})
    assert caught.value.name == field.name


@pytest.mark.parametrize("job", JOBS)
def test_every_required_setting_is_asked_for(job: type[RunDirectory]) -> None:
    required = {field.name for field in job.settings() if field.required}
    # A query may stand in the place of prepare's source.
    assert required == set(REQUIRED[job]) - ({"source"} if job is Prepare else set())
    for name in REQUIRED[job]:
        rest = {key: value for key, value in REQUIRED[job].items() if key != name}
        with pytest.raises(SettingError, match=f"'{name}'"):
            job.from_mapping(rest)


def test_templates_pass_unchecked_and_are_checked_once_rendered() -> None:
    spec = TrainHorovod.from_mapping(
        {**TRAIN, "epochs": "{{ params.epochs }}", "input_shape": ["{{ x }}"]}
    )
    assert spec.templated
    with pytest.raises(SettingError, match="not rendered"):
        spec.argv()
    rendered = spec.to_mapping() | {"epochs": "3", "input_shape": "[1, 28, 28]"}
    assert TrainHorovod.from_mapping(rendered).epochs == 3
    with pytest.raises(SettingError, match="'epochs' is 0"):
        TrainHorovod.from_mapping(rendered | {"epochs": "0"})


def test_settings_that_contradict_each_other_are_checked_once_rendered() -> None:
    spec = Prepare.from_mapping({**PREPARE, "validation_fraction": 0.5, "test_fraction": "{{ x }}"})
    with pytest.raises(SettingError, match="leaves no rows to train on"):
        Prepare.from_mapping(spec.to_mapping() | {"test_fraction": "0.5"})


@pytest.mark.parametrize(
    ("flag", "meant"), [("--epoch=3", "--epochs"), ("--learningrate=1", "--learning-rate")]
)
def test_a_misspelt_or_shortened_flag_is_refused(flag: str, meant: str) -> None:
    with pytest.raises(SettingError, match=meant):
        TrainHorovod.parse([*TrainHorovod(**TRAIN).argv(), flag])


def test_a_misspelt_name_is_refused() -> None:
    with pytest.raises(SettingError, match="'batch_size'"):
        TrainHorovod.from_mapping({**TRAIN, "batchsize": 3})


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("False", False), (True, True), ("false", False)]
)
def test_booleans_are_read_as_people_write_them(text: object, value: bool) -> None:
    assert TrainHorovod.from_mapping({**TRAIN, "streaming": text}).streaming is value


@pytest.mark.parametrize("text", ["yes", 1, 0, "1", None, ""])
def test_what_is_no_boolean_is_refused(text: object) -> None:
    with pytest.raises(SettingError, match="true or false"):
        TrainHorovod.from_mapping({**TRAIN, "streaming": text})


@pytest.mark.parametrize(
    "text", ["1, 28,28", "[1, 28, 28]", "(1, 28, 28)", [1, 28, 28], ["1", 28, 28.0]]
)
def test_lists_are_read_as_people_write_them(text: object) -> None:
    assert TrainHorovod.from_mapping({**TRAIN, "input_shape": text}).input_shape == (1, 28, 28)


@pytest.mark.parametrize("value", ["3.5", 3.5, "x", None, True, float("nan"), float("inf"), []])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(SettingError, match="'epochs'"):
        TrainHorovod.from_mapping({**TRAIN, "epochs": value})


@pytest.mark.parametrize("value", ["nan", math.inf, "-inf", "1e999"])
def test_what_is_no_finite_number_is_refused(value: object) -> None:
    with pytest.raises(SettingError, match="'learning_rate'"):
        TrainHorovod.from_mapping({**TRAIN, "learning_rate": value})


def test_columns_have_one_role() -> None:
    with pytest.raises(SettingError, match="two roles"):
        Prepare.from_mapping({**PREPARE, "key": "digit"})


@pytest.mark.parametrize("job", JOBS)
def test_help_names_every_flag(job: type[RunDirectory], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        job.parse(["--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert [field.flag for field in job.settings() if field.flag not in text] == []


def test_the_optimizers_parameters_are_torchs() -> None:
    from torch import optim

    # What is not the user's to choose: how torch runs the update, and what the contract itself has.
    ours = {"self", "params", "lr", "foreach", "maximize", "capturable", "differentiable", "fused"}
    for name, known in OPTIMIZER_PARAMS.items():
        torchs = inspect.signature(getattr(optim, name)).parameters
        assert set(known) == set(torchs) - ours - {"decoupled_weight_decay"}
        for parameter, kind in known.items():
            default = torchs[parameter].default
            expected = {bool: "flag", tuple: "pair"}.get(type(default), "number")
            assert kind == expected, f"{name}.{parameter}"


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"momentun": 0.9}, "'momentum'"),
        ({"lr": 0.1}, "learning_rate"),
        ({"nesterov": 1}, "wants a flag"),
        ({"momentum": "0.9"}, "wants a number"),
        ({"momentum": True}, "wants a number"),
    ],
)
def test_a_wrong_optimizer_parameter_is_refused(params: dict[str, object], problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        TrainHorovod.from_mapping({**TRAIN, "optimizer_params": params})


def test_the_contract_imports_the_standard_library_alone() -> None:
    program = "import sys, trainyard.specs, trainyard.layout; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    allowed = set(sys.stdlib_module_names) | {"__main__", "trainyard", "sitecustomize"}
    roots = {name.split(".")[0] for name in loaded if not name.startswith("_")}
    assert "trainyard" in roots
    assert roots - allowed == set()


@pytest.mark.parametrize("name", ["a/b", "a:b", "a@champion", "it's", "a b", "", ".", "-x", "ü"])
def test_a_model_name_that_no_uri_can_hold_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="setting 'model_name' is"):
        TrainHorovod.from_mapping({**TRAIN, "model_name": name})


def test_what_says_how_the_work_is_done_decides_nothing() -> None:
    spec = TrainHorovod.from_mapping(TRAIN)
    undecided = spec.to_mapping().keys() - spec.decisive().keys()
    assert undecided == {
        "run_dir",
        "dataset",
        "checkpoint_every",
        "cycle_time_ms",
        "relaunches",
        "start_timeout",
        "stall_timeout",
        "experiment",
        "model_name",
    }


@pytest.mark.parametrize("setting", ["source", "tables"])
def test_a_password_in_a_uri_is_refused_and_not_shown(setting: str) -> None:
    uri = "s3a://me:open-sesame@bucket/x.parquet"
    given = {"source": uri} if setting == "source" else {"tables": {"a": uri}, "query": "SELECT 1"}
    rest = {key: value for key, value in PREPARE.items() if key != "source"}
    with pytest.raises(SettingError, match="holds a password") as caught:
        Prepare.from_mapping({**rest, **given})
    assert "open-sesame" not in str(caught.value)
    assert Prepare.from_mapping({**rest, "source": "s3a://bucket/a:b@c"}).source


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("epochs", 10**400),
        ("start_timeout", 10**5000),
        ("start_timeout", "9" * 100),
        ("learning_rate", 10**400),
        ("experiment", 10**5000),
        ("optimizer_params", {"lr": 10**5000}),
        ("optimizer_params", '{"a":' * 100_000),
        ("input_shape", "[" * 100_000),
    ],
    ids=[str(case) for case in range(8)],  # pytest cannot show the values either
)
def test_what_is_too_large_or_too_deep_is_named_in_a_short_message(
    setting: str, value: object
) -> None:
    with pytest.raises(SettingError, match=f"setting '{setting}' is") as raised:
        TrainHorovod.from_mapping({**TRAIN, setting: value}).argv()
    assert len(str(raised.value)) < 1000


def test_a_mapping_that_is_nested_too_deeply_is_named() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(SettingError, match=r"'optimizer_params' is .*nested too deeply"):
        TrainHorovod.from_mapping({**TRAIN, "optimizer_params": deep})


def test_a_password_in_a_setting_of_another_type_is_not_shown() -> None:
    with pytest.raises(SettingError, match="'epochs' is 's3a://") as raised:
        TrainHorovod.from_mapping({**TRAIN, "epochs": "s3a://me:open-sesame@bucket"})
    assert "open-sesame" not in str(raised.value)


@pytest.mark.parametrize("setting", ["model", "champion"])
def test_a_model_at_a_web_address_is_refused(setting: str) -> None:
    given = {
        "run_dir": "/r",
        "dataset": "/d",
        "model": "models:/m/1",
        setting: "http://host:5000/m",
    }
    with pytest.raises(SettingError, match=f"'{setting}' is 'http://host.*models:/NAME"):
        Evaluate.from_mapping(given)
    with pytest.raises(SettingError, match=r"'model' is 'https://host.*models:/NAME"):
        Predict(run_dir="/r", source="/s", model="https://host/m")
