"""From an estimator's parameters to trained weights: check, write the rows, launch, clear up."""

from __future__ import annotations

import functools
import inspect
import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import torch

from trainyard import store as objects
from trainyard.claims import Claim
from trainyard.errors import JobError, SettingError
from trainyard.horovod import checkpoints
from trainyard.horovod.estimator import judge
from trainyard.horovod.estimator.backend import active_context
from trainyard.horovod.estimator.checks import (
    backend_of,
    check_functions,
    check_model,
    check_validation,
    compression_of,
    for_each,
    needed,
    together,
)
from trainyard.horovod.estimator.data import Given, found, staged
from trainyard.horovod.estimator.loop import State, train
from trainyard.horovod.estimator.params import shapes
from trainyard.horovod.estimator.store import Store
from trainyard.horovod.estimator.work import Work
from trainyard.horovod.loader import check_rows
from trainyard.layout import join, safe_name
from trainyard.ml.parameter import listed, native
from trainyard.ml.part import TRAIN
from trainyard.session import ship

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from trainyard.horovod.estimator.estimator import TorchEstimator

_DECISIVE = (
    "feature_cols",
    "label_cols",
    "sample_weight_col",
    "input_shapes",
    "label_shapes",
    "loss_weights",
    "validation",
    "validation_steps_per_epoch",
    "batch_size",
    "random_seed",
    "shuffle",
    "train_steps_per_epoch",
    "backward_passes_per_step",
)
"""Parameters that a run which is resumed must have as before."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What came of a training.

    Attributes:
        model: with the weights of the best epoch.
        optimizer: as it was after the last epoch, of the model's parameters.
        history: of every epoch.
        run_id: the run.
    """

    model: torch.nn.Module
    optimizer: Any
    history: list[dict[str, Any]]
    run_id: str


class Fit:
    """One fit of an estimator.

    Args:
        estimator: its parameters.

    Raises:
        SettingError: a parameter is missing, or cannot be.
    """

    def __init__(self, estimator: TorchEstimator) -> None:
        estimator.check()
        self._of = estimator.value
        self.features = tuple(needed(self._of, "feature_cols", "the model's inputs are columns"))
        self.labels = tuple(
            needed(self._of, "label_cols", "the model's outputs are judged by labels")
        )
        self.store: Store = needed(self._of, "store", "runs and rows lie in a store")
        check_model(needed(self._of, "model", "there must be something to train"))
        needed(self._of, "optimizer", "weights are changed by one")
        self.input_shapes = shapes("input_shapes", self._of("input_shapes"), list(self.features))
        check_functions(self._of)
        check_validation(self._of)
        self.store.open()
        self.backend = backend_of(self._of)
        self.run_id = self._of("run_id") or _new_id()
        run, safe = self.store.get_run_path(self.run_id), safe_name(self.run_id)
        self.temporary = join(self.store.prefix_path, "intermediate", f"{safe}-{uuid.uuid4().hex}")
        self.run_dir = run if self.store.saving_runs() else join(self.temporary, "run")

    def on(self, frame: DataFrame) -> Fitted:
        """Train on a frame's rows."""
        ship(frame.sparkSession.sparkContext)
        with self._directory() as claim:
            before, ranks = self._before(), self.backend.num_processes()
            given = staged(self._of, frame, self.store, self.temporary, ranks)
            return self._trained(given, claim, before)

    def on_parquet(self, dataset_idx: object) -> Fitted:
        """Train on the rows at the store's own paths, as they are."""
        ship(active_context())
        with self._directory() as claim:
            before = self._before()
            return self._trained(found(self._of, self.store, dataset_idx), claim, before)

    @contextmanager
    def _directory(self) -> Iterator[int]:
        """The run's directory, claimed by this driver alone; gives the claim's number."""
        lost: list[bool] = []
        claim = Claim.take(self.run_dir, on_lost=lambda: lost.append(True))
        try:
            yield claim.record.number
        finally:
            claim.release()
            objects.remove(self.temporary)
        if lost:
            raise JobError(f"another driver took over the run {self.run_id!r}.", "Fit again.")

    def _trained(self, given: Given, claim: int, before: State | None) -> Fitted:
        made_by = self._made_by(given.content)
        if before is not None:
            self._check_same(made_by, before["made_by"])
            made_by = before["made_by"]
            if self._is_complete(before):
                return self._fitted(before)
            if self._of("verbose"):
                after = len(before["history"])
                print(f"run {self.run_id} resumes after epoch {after}", flush=True)
        work = self._work(given, made_by)
        self._check(work)
        state = self.backend.launch(
            lambda _: _training(work),
            run_dir=self.run_dir,
            claim=claim,
            access=self.store.access,
        )[0]
        assert state is not None  # noqa: S101 - rank 0 returns it
        return self._fitted(state)

    def _before(self) -> State | None:
        """The state of the run's last checkpoint, if it has any.

        Raises:
            SettingError: ranks are needed, and Spark can never start them.
        """
        state = checkpoints.load(self.run_dir, print)
        if state is None or not self._is_complete(state):
            self.backend.check()
        return state

    def _is_complete(self, state: State) -> bool:
        return bool(len(state["history"]) >= self._of("epochs"))

    def _check_same(self, made_by: dict[str, Any], then: dict[str, Any]) -> None:
        """Raise `SettingError` where the run was made with other rows or settings."""
        changed = [n for n in made_by if n != "seed" and made_by[n] != then.get(n)]
        if changed:
            raise SettingError(
                "run_id",
                self.run_id,
                f"the store has a run of this name that was made with other {', '.join(changed)}",
                "Use another run_id, or none, which makes a new one.",
            )

    def _made_by(self, content: Any) -> dict[str, Any]:
        optimizer, model = self._of("optimizer"), self._of("model")
        groups = [
            {
                name: native(value)
                for name, value in group.items()
                if name != "params" and isinstance(value, int | float | list | tuple)
            }
            for group in optimizer.param_groups
        ]
        seed = self._of("random_seed")
        return {
            "rows": content,
            "model": {name: list(value.shape) for name, value in model.state_dict().items()},
            "optimizer": [getattr(optimizer, "kind", type(optimizer).__name__), groups],
            **{name: native(self._of(name)) for name in _DECISIVE},
            "seed": secrets.randbelow(2**31) if seed is None else seed,
        }

    def _work(self, given: Given, made_by: dict[str, Any]) -> Work:
        of, labels = self._of, len(self.labels)
        model, optimizer = together(of("model"), of("optimizer"))
        weights = of("loss_weights") or [1 / labels] * labels
        losses, constructors = of("loss"), of("loss_constructors")
        for name, value in (("loss_weights", weights), ("loss", losses)):
            if isinstance(value, list) and len(value) not in (1, labels):
                raise SettingError(
                    name, value, f"there are {labels} label_cols", "Give one for each of them."
                )
        label_shapes = of("label_shapes")
        if label_shapes:
            label_shapes = shapes("label_shapes", label_shapes, list(self.labels))
        return Work(
            run_dir=self.run_dir,
            access=self.store.access,
            datasets=given.datasets,
            columns=given.columns,
            made_by=made_by,
            model=model,
            optimizer=optimizer,
            losses=None if losses is None else for_each(losses, labels),
            constructors=None if constructors is None else for_each(constructors, labels),
            loss_weights=for_each(weights, labels),
            metrics=[listed(group) for group in listed(of("metrics") or ())],
            callbacks=listed(of("callbacks") or ()),
            minibatch=of("train_minibatch_fn"),
            transform=of("transformation_fn"),
            input_shapes=self.input_shapes,
            label_shapes=label_shapes or None,
            epochs=of("epochs"),
            batch_size=of("batch_size"),
            val_batch_size=of("val_batch_size") or of("batch_size"),
            steps=of("train_steps_per_epoch"),
            val_steps=of("validation_steps_per_epoch"),
            passes=of("backward_passes_per_step"),
            shuffle=of("shuffle"),
            streaming=not of("inmemory_cache_all"),
            seed=made_by["seed"],
            device="auto" if of("use_gpu") else "cpu",
            compression=compression_of(of("gradient_compression")),
            stall_timeout=self.backend.stall_timeout,
            verbose=of("verbose"),
        )

    def _check(self, work: Work) -> None:
        """Refuse what the ranks would stumble over, before they start."""
        rows, ranks = work.datasets[TRAIN].rows(TRAIN), self.backend.num_processes()
        check_rows(rows, ranks=ranks, batch_size=work.batch_size)
        if work.minibatch is not None and work.batch_size == 1 and rows % ranks:
            raise SettingError(
                "batch_size", 1, f"{rows} rows are no multiple of {ranks} ranks", "Set it to 2."
            )
        takes = inspect.signature(inspect.unwrap(type(work.optimizer).step)).parameters
        if "closure" in takes and takes["closure"].default is inspect.Parameter.empty:
            raise SettingError(
                "optimizer",
                type(work.optimizer).__qualname__,
                "it computes the loss several times a step, on all ranks",
                "Use one that steps by the gradients alone, such as SGD or AdamW.",
            )
        judge.check(work)

    def _fitted(self, state: State) -> Fitted:
        model, optimizer = together(self._of("model"), self._of("optimizer"))
        optimizer.load_state_dict(state["optimizer"])
        model.load_state_dict(state["best"])
        return Fitted(
            model=model.cpu().eval(),
            optimizer=optimizer,
            history=state["history"],
            run_id=self.run_id,
        )


def _training(work: Work) -> Callable[[], State | None]:
    return functools.partial(train, work)


def _new_id() -> str:
    return f"torch-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
