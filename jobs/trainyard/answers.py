"""What a model says of each row: the columns of the predictions' files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from trainyard.dataset import KEY, REGRESSION
from trainyard.errors import JobError, SettingError, shown_key
from trainyard.models import ModelIdentity, ModelMeta
from trainyard.parts import lists, matrix
from trainyard.rows import Batch
from trainyard.scoring import Scorer

_SAME = ("model_name", "model_version", "scored_at")
"""Columns that are the same in every row."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What each row is told.

    Attributes:
        identity: of the model.
        scored_at: when the scoring began.
        top_k: likeliest classes to keep of a row, by name; None for the probabilities of all.
    """

    identity: ModelIdentity
    scored_at: datetime
    top_k: int | None = None

    def schema(self, meta: ModelMeta) -> pa.Schema:
        """The files' schema.

        A class is a whole number where all classes are, else a text; a regression predicts a double
        and has no probabilities.
        """
        kind = pa.float64()
        says = []
        if meta.task != REGRESSION:
            whole = all(isinstance(value, int) for value in meta.classes)
            kind = pa.int64() if whole else pa.string()
            says = [pa.field("labels", pa.list_(kind))] if self.top_k else []
            says.append(pa.field("probabilities", pa.list_(pa.float64())))
        return pa.schema(
            [
                pa.field(KEY, pa.string()),
                pa.field("prediction", kind),
                *says,
                pa.field("model_name", pa.string()),
                pa.field("model_version", pa.string()),
                pa.field("scored_at", pa.timestamp("us", tz="UTC")),
            ]
        )

    def repeating(self, meta: ModelMeta) -> tuple[str, ...]:
        """The columns whose values repeat."""
        return _SAME if meta.task == REGRESSION else ("prediction", *_SAME)

    def of(self, batch: Batch, scorer: Scorer, schema: pa.Schema) -> pa.RecordBatch:
        """The predictions of a batch's good rows.

        Raises:
            JobError: a score is not finite.
        """
        keys, features, margins = _good(batch, scorer.meta)
        if scorer.meta.task == REGRESSION:
            values = scorer.values(features, margins)
            _check_finite(values, keys)
            says = [pa.array(values)]
        else:
            logs = scorer.log_probabilities(features, margins)
            _check_finite(logs.sum(axis=1), keys)
            says = self._classes(logs, scorer.meta, schema.field("prediction").type)
        same = {
            "model_name": self.identity.name,
            "model_version": self.identity.version,
            "scored_at": self.scored_at,
        }
        repeated = [
            pa.repeat(pa.scalar(value, schema.field(name).type), len(keys))
            for name, value in same.items()
        ]
        return pa.RecordBatch.from_arrays([keys, *says, *repeated], schema=schema)

    def _classes(self, logs: np.ndarray[Any, Any], meta: ModelMeta, kind: Any) -> list[pa.Array]:
        classes = pa.array(meta.classes, kind)
        if self.top_k is None:
            best = classes.take(pa.array(logs.argmax(axis=1)))
            return [best, lists(np.exp(logs))]
        top = np.argsort(-logs, axis=1, kind="stable")[:, : self.top_k]
        named = classes.take(pa.array(top.reshape(-1)))
        offsets = np.arange(len(top) + 1, dtype=np.int32) * self.top_k
        labels = pa.ListArray.from_arrays(offsets, named)
        probabilities = np.exp(np.take_along_axis(logs, top, axis=1))
        return [classes.take(pa.array(top[:, 0])), labels, lists(probabilities)]


def check_top_k(top_k: int | None, meta: ModelMeta) -> None:
    """Raise `SettingError` when a model has not as many classes as are to be kept."""
    if top_k is None:
        return
    if meta.task == REGRESSION:
        raise SettingError("top_k", top_k, "a regression has no classes", "Leave it out.")
    if top_k > len(meta.classes):
        problem = f"the model has {len(meta.classes)} classes"
        raise SettingError("top_k", top_k, problem, "Use that many or fewer.")


def _good(
    batch: Batch, meta: ModelMeta
) -> tuple[pa.Array, np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """The keys, features and base margins of the good rows; copied only where there are others."""
    keys, features = batch.keys, batch.values
    margins = batch.margins if meta.base_margin is not None else None
    if batch.faults:
        good = pa.array(batch.good)
        keys, features = keys.take(good), features[batch.good]
        margins = None if margins is None else margins.take(good)
    floats = None if margins is None else matrix(margins, meta.margins).astype(np.float32)
    return keys, features.astype(np.float32, copy=False), floats


def _check_finite(scores: np.ndarray[Any, Any], keys: pa.Array) -> None:
    broken = np.flatnonzero(~np.isfinite(scores))
    if len(broken):
        key = shown_key(keys[int(broken[0])])
        raise JobError(
            f"the model gives scores that are not finite, such as for key {key}.",
            "Check the model's training and the row's features.",
        )
