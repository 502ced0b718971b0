"""What retention removes and, more important, what it never does; with a real registry."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from trainyard import champions, lineage, registry, retention, rundir, store
from trainyard.claims import Claim
from trainyard.errors import JobError
from trainyard.retention import DAY, Keep
from trainyard.tracking import PARENT_TAG, RUN_DIR_TAG
from trainyard_airflow.operators.retention import CollectGarbageOperator

KEEP = Keep(days=30, runs=100, checkpoint_days=7)


class Store:
    """A store with a registry in it; runs are made with an age in days."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = time.time()

    def task(
        self, run: str, task: str, *, age: float, finished: bool = True, **settings: str
    ) -> Path:
        """A task's generation: its claim, its files and, where it has finished, its result."""
        directory = self.root / run / task / "g0"
        began = self.now - age * DAY
        claim = Claim.take(str(directory))
        claim.release()
        path = directory / "claims" / "0001.json"
        store.write_json(str(path), {**store.read_json(str(path)), "time": began})
        store.write_bytes(str(directory / "data/part.parquet"), b"x")
        if task == "train":
            store.write_bytes(str(directory / "checkpoints/epoch-1/state"), b"x")
        if finished:
            result = {"job": task, "settings": settings, "outputs": {}, "finished": began}
            rundir.write_result(str(directory), result)
        return directory

    def version(self, directory: Path, name: str = "mnist") -> str:
        """A registered version that a task made."""
        client = registry.client()
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        known = client.get_experiment_by_name("e")
        experiment = (
            known.experiment_id
            if known
            else client.create_experiment("e", str(self.root / "artifacts"))
        )
        run_id = client.create_run(experiment).info.run_id
        client.log_dict(run_id, {}, "model/meta.json")
        tags = {RUN_DIR_TAG: str(directory)}
        made = client.create_model_version(name, "file:///nowhere", run_id, tags=tags)
        return str(made.version)

    def promote(self, version: str, name: str = "mnist") -> None:
        now = champions.serving(name)
        known = now.version if now else None
        champions.promote(name, version, known=known, who="a test", why="it says so")

    def plan(self, keep: Keep = KEEP) -> retention.Plan:
        return retention.plan(str(self.root), keep, self.now)

    def collect(self, keep: Keep = KEEP) -> retention.Plan:
        plan = self.plan(keep)
        plan.apply()
        return plan


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry's empty database: making its tables takes seconds, copying it does not."""
    path = tmp_path_factory.mktemp("registry") / "mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
        registry.client()
    return path


@pytest.fixture
def made(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    root = tmp_path / "store"
    root.mkdir()
    shutil.copy(database, root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root}/mlflow.db")
    return Store(root)


def test_old_runs_go_and_young_ones_stay(made: Store) -> None:
    made.task("flights/old", "prepare", age=31)
    made.task("flights/old", "train", age=30.5)
    young = made.task("flights/young", "prepare", age=29)
    plan = made.collect()
    assert plan.runs == ("flights/old",)
    assert not (made.root / "flights/old").exists()
    assert (young / "result.json").exists()


def test_a_run_is_as_old_as_its_last_task(made: Store) -> None:
    made.task("flights/long", "prepare", age=40)
    made.task("flights/long", "train", age=3)
    assert made.plan().runs == ()


def test_more_runs_than_are_kept_go_the_oldest_first_for_each_dag(made: Store) -> None:
    for age in (2, 3, 4):
        made.task(f"flights/{age}", "prepare", age=age)
    made.task("mnist/9", "prepare", age=9)
    assert made.plan(Keep(days=30, runs=2, checkpoint_days=7)).runs == ("flights/4",)


def test_a_run_of_the_last_day_stays_even_if_too_many_are_newer(made: Store) -> None:
    made.task("flights/a", "prepare", age=0.2, finished=False)
    made.task("flights/b", "prepare", age=0.1)
    plan = made.plan(Keep(days=30, runs=1, checkpoint_days=7))
    assert plan.runs == ()
    assert plan.kept == {"flights/a": "it was active in the last day"}


def test_the_champion_and_all_it_was_made_from_stay_however_old(made: Store) -> None:
    data = made.task("data/first", "prepare", age=400)
    train = made.task("mnist/first", "train", age=390, dataset=f"{data}/data")
    other = made.task("mnist/second", "train", age=380)
    champion, loser = made.version(train), made.version(other)
    made.promote(champion)
    runs = {version.version: version for version in lineage.versions()}

    plan = made.collect()

    assert plan.runs == ("mnist/second",)
    assert [version.version for version in plan.versions] == [loser]
    assert plan.checkpoints == ()
    assert "alias champion" in plan.kept["mnist/first"]
    assert plan.kept["data/first"] == "a kept run was made from it"
    assert (train / "checkpoints/epoch-1/state").exists()
    assert (data / "data/part.parquet").exists()
    client = registry.client()
    assert registry.find_version("mnist", loser) is None
    assert registry.find_version("mnist", champion) is not None
    stages = {v: client.get_run(runs[v].run_id or "").info.lifecycle_stage for v in runs}
    assert stages == {champion: "active", loser: "deleted"}
    assert [path.name for path in (made.root / "artifacts").iterdir()] == [runs[champion].run_id]


def test_the_champion_stays_however_the_store_is_spelled(made: Store, tmp_path: Path) -> None:
    directory = made.task("d/champion", "train", age=90)
    made.task("d/old", "train", age=90)
    made.promote(made.version(directory))
    (tmp_path / "link").symlink_to(made.root)
    for root in (f"{made.root}/.", f"/{made.root}", f"file:{made.root}", f"{tmp_path}/link"):
        assert retention.plan(root, KEEP).runs == ("d/old",)


@pytest.mark.parametrize("file", ["result.json", "claims/0002.json"])
def test_a_run_that_cannot_be_read_stays_and_keeps_no_other(made: Store, file: str) -> None:
    strange = made.task("d/strange", "train", age=90)
    made.task("d/old", "train", age=90)
    (strange / file).write_text("{}")
    plan = retention.plan(str(made.root), KEEP)
    assert plan.runs == ("d/old",)
    assert "d/strange/train/g0 cannot be read" in plan.kept["d/strange"]


def test_the_champion_before_stays_for_a_rollback(made: Store) -> None:
    tasks = [made.task(f"mnist/{i}", "train", age=100 - i) for i in range(3)]
    for task in tasks:
        made.promote(made.version(task))
    assert made.collect().runs == ("mnist/0",)
    assert champions.previous("mnist") == "2"
    assert registry.find_version("mnist", "2") is not None


def test_a_search_goes_with_its_trials_in_mlflow(made: Store) -> None:
    client = registry.client()
    experiment = client.create_experiment("e", str(made.root / "artifacts"))
    runs = {}
    for name, age in (("old", 40.0), ("young", 3.0)):
        directory = made.task(f"tune/{name}", "tune", age=age)
        parent = client.create_run(experiment).info.run_id
        tags = {PARENT_TAG: parent}
        runs[name] = [parent, *(client.create_run(experiment, tags=tags).info.run_id for _ in "ab")]
        client.log_text(parent, "x", "history.png")
        path = str(directory / "result.json")
        store.write_json(path, {**store.read_json(path), "mlflow_run_id": parent})
    assert f"remove MLflow run {runs['old'][0]}, a search" in list(made.plan().lines())
    made.collect()
    assert {run.info.run_id for run in client.search_runs([experiment])} == set(runs["young"])
    assert not (made.root / "artifacts" / runs["old"][0]).exists()
    assert (made.root / "artifacts" / runs["young"][0]).exists()


def test_a_live_driver_keeps_its_run(made: Store) -> None:
    directory = made.task("flights/long", "train", age=60, finished=False)
    claim = Claim.take(str(directory))
    path = directory / "claims" / "0002.json"
    store.write_json(str(path), {**store.read_json(str(path)), "time": made.now - 50 * DAY})
    plan = made.collect()
    assert plan.runs == ()
    assert f"process {claim.record.pid}" in plan.kept["flights/long"]
    claim.release()
    assert made.collect().runs == ("flights/long",)


def test_a_dataset_that_a_young_run_reuses_stays(made: Store) -> None:
    data = made.task("flights/old", "prepare", age=100)
    made.task("flights/young", "train", age=2, dataset=f"{data}/data")
    assert made.collect().runs == ()
    assert (data / "data/part.parquet").exists()


def test_checkpoints_of_finished_trainings_go_before_their_runs(made: Store) -> None:
    done = made.task("flights/done", "train", age=8)
    failed = made.task("flights/failed", "train", age=8, finished=False)
    young = made.task("flights/young", "train", age=6)
    assert made.collect().checkpoints == ("flights/done/train/g0/checkpoints",)
    assert not (done / "checkpoints").exists()
    assert (done / "data/part.parquet").exists()
    assert (failed / "checkpoints").exists()
    assert (young / "checkpoints").exists()


def test_what_is_no_run_is_left_alone(made: Store) -> None:
    for name in ("notes/a/b/c.txt", "notes/run/task/g0/file", "notes/run/task/data/claims/x"):
        store.write_bytes(str(made.root / name), b"x")
    before = sorted(made.root.rglob("*"))
    plan = made.collect(Keep(days=1, runs=1, checkpoint_days=1))
    assert plan.runs == plan.checkpoints == ()
    assert [path for path in before if not path.exists()] == []


@pytest.mark.parametrize("place", ["flights/old", "flights/old/train", "flights/old/notes"])
def test_what_somebody_put_beside_the_generations_of_a_run_stays(made: Store, place: str) -> None:
    directory = made.task("flights/old", "train", age=100)
    store.write_bytes(str(made.root / "flights/old/train/g1/tickets/0001.ticket"), b"issued\n")
    note = made.root / place / "note.txt"
    store.write_bytes(str(note), b"mine")
    assert made.collect().runs == ("flights/old",)
    assert note.read_bytes() == b"mine"
    assert not directory.exists()
    assert not (made.root / "flights/old/train/g1").exists()
    assert made.plan().runs == ()


@pytest.mark.parametrize("place", ["flights", "flights/old", "flights/old/train"])
def test_a_link_never_leads_out_of_the_store(made: Store, tmp_path: Path, place: str) -> None:
    made.task("flights/old", "train", age=100)
    outside = tmp_path / "outside"
    (made.root / place).rename(outside)
    (made.root / place).symlink_to(outside)
    made.collect()
    assert [path.name for path in outside.rglob("part.parquet")] == ["part.parquet"]
    assert [path.name for path in outside.rglob("result.json")] == ["result.json"]


def test_links_inside_a_run_are_removed_and_not_followed(made: Store, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    store.write_bytes(str(precious / "file"), b"x")
    directory = made.task("flights/old", "train", age=100)
    for name in ("model", "data/linked", "claims/linked"):
        (directory / name).symlink_to(precious)
    assert made.collect().runs == ("flights/old",)
    assert not (made.root / "flights/old").exists()
    assert (precious / "file").exists()


def test_checkpoints_that_are_a_link_are_left_alone(made: Store, tmp_path: Path) -> None:
    directory = made.task("flights/done", "train", age=8)
    (directory / "checkpoints").rename(tmp_path / "moved")
    (directory / "checkpoints").symlink_to(tmp_path / "moved")
    assert made.collect().checkpoints == ()
    assert (tmp_path / "moved/epoch-1/state").exists()


def test_names_that_point_upwards_protect_and_remove_nothing(made: Store) -> None:
    made.task("flights/old", "train", age=100)
    made.task("flights/young", "train", age=2, dataset=f"{made.root}/flights/x/../old/train/g0")
    assert made.plan().runs == ("flights/old",)
    assert store.within(str(made.root), f"{made.root}/a/../../b") is None
    assert store.within(str(made.root), f"{made.root}-other/b") is None


def test_an_interrupted_removal_is_finished_the_next_night(
    made: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.task("flights/old", "train", age=100)
    remove: Callable[[str], None] = store.remove
    removed: list[str] = []

    def dies(uri: str) -> None:
        if len(removed) == 2:
            raise OSError("the store is away")
        removed.append(uri)
        remove(uri)

    monkeypatch.setattr(store, "remove", dies)
    with pytest.raises(OSError, match="away"):
        made.collect()
    monkeypatch.undo()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{made.root}/mlflow.db")
    assert removed[0].endswith("result.json")
    assert made.collect().runs == ("flights/old",)
    assert not (made.root / "flights/old").exists()


def test_without_a_registry_nothing_goes(made: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made.task("flights/old", "train", age=100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(JobError, match="the model registry answers"):
        made.collect()
    assert (made.root / "flights/old/train/g0/result.json").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"days": 0.5}, "'keep_days' is 0.5: it is below 1"),
        ({"runs": 0}, "'keep_runs' is 0: it is below 1"),
        ({"checkpoint_days": float("nan")}, "'checkpoint_days' is nan: it is below 1"),
    ],
)
def test_a_retention_that_would_remove_all_is_refused(
    setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobError, match=message):
        Keep(**{"days": 30, "runs": 100, "checkpoint_days": 7, **setting})


class TestOperator:
    def collect(self, made: Store, context: Callable[..., Any], **changed: Any) -> Any:
        given = {"keep_days": "30", "keep_runs": "100", "checkpoint_days": "7", **changed}
        return CollectGarbageOperator(task_id="collect", **given).execute(context())

    @pytest.fixture(autouse=True)
    def configured(self, made: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__TRAINYARD__STORE", str(made.root))

    def test_a_dry_run_lists_and_removes_nothing(
        self, made: Store, context: Callable[..., Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        made.task("flights/old", "train", age=100)
        found = self.collect(made, context, only_list="True")
        assert (found["runs"], found["dry_run"]) == (1, True)
        assert "(dry run) remove flights/old" in capsys.readouterr().out
        assert (made.root / "flights/old/train/g0/result.json").exists()
        assert self.collect(made, context)["runs"] == 1
        assert not (made.root / "flights/old").exists()

    def test_a_setting_that_is_not_allowed(self, made: Store, context: Callable[..., Any]) -> None:
        with pytest.raises(AirflowFailException, match="'keep_runs' is 0"):
            self.collect(made, context, keep_runs=0)
