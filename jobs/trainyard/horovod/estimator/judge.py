"""What an estimator's model gives for a batch, and how good that is by the user's functions."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainyard.errors import JobError
from trainyard.horovod.estimator.work import Work
from trainyard.horovod.pieces import Rows
from trainyard.ml.parameter import listed


class Judge:
    """Applies the user's functions to batches.

    Args:
        work: the training.
        network: the model, on its device.
        device: where it computes.
        losses: one for each label.
    """

    def __init__(
        self, work: Work, network: nn.Module, device: torch.device, losses: Sequence[Any]
    ) -> None:
        self._work = work
        self._network = network
        self._device = device
        self._losses = losses

    @property
    def sums(self) -> int:
        """How many numbers `summed` gives."""
        return 2 + len(self._work.metrics) * len(self._work.columns.labels)

    def parts(self, rows: Rows) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """The inputs, the labels and the weights of a batch, on the device."""
        columns = self._work.columns
        inputs = list(torch.split(rows.features, columns.numbers(columns.features), dim=1))
        labels = list(torch.split(rows.labels, columns.numbers(columns.labels), dim=1))
        labels = [
            label[:, 0] if not columns.widths[name] else label
            for name, label in zip(columns.labels, labels, strict=True)
        ]
        weights = rows.weights
        if self._work.transform is not None:
            inputs, labels, weights = self._transformed(inputs, labels, weights)
        # By their number of rows: a shape of other numbers would make more or fewer of them.
        inputs = [
            value.to(self._device).reshape(len(value), *shape[1:])
            for value, shape in zip(inputs, self._work.input_shapes, strict=True)
        ]
        labels = [label.to(self._device) for label in labels]
        return inputs, labels, None if weights is None else weights.to(self._device)

    def _transformed(
        self, inputs: list[Tensor], labels: list[Tensor], weights: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """What the user's function makes of each row."""
        work, columns = self._work, self._work.columns
        assert work.transform is not None  # noqa: S101 - or this is not called
        values = dict(zip((*columns.features, *columns.labels), (*inputs, *labels), strict=True))
        if columns.weight is not None and weights is not None:
            values[columns.weight] = weights
        count = len(labels[0])
        single = {name for name, width in columns.widths.items() if not width}
        arrays = {
            name: value.reshape(count, -1)[:, 0].numpy() if name in single else value.numpy()
            for name, value in values.items()
        }
        made = [work.transform({n: a[i] for n, a in arrays.items()}) for i in range(count)]

        def stacked(name: str) -> Tensor:
            return torch.from_numpy(np.stack([np.asarray(row[name], np.float32) for row in made]))

        inputs = [stacked(name) for name in columns.features]
        labels = [stacked(name) for name in columns.labels]
        return inputs, labels, None if columns.weight is None else stacked(columns.weight)

    def fitted(self, outputs: Any, labels: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs as a list, and the labels in the shapes that the losses want."""
        given = listed(outputs)
        shapes = self._work.label_shapes
        if shapes is not None:
            shaped = [x.reshape(tuple(s)) for x, s in zip(labels, shapes, strict=True)]
        else:
            shaped = [
                label.reshape(output.shape) if output.numel() == label.numel() else label
                for output, label in zip(given, labels, strict=True)
            ]
        return given, shaped

    def loss(self, outputs: Sequence[Any], labels: Sequence[Any], weights: Tensor | None) -> Tensor:
        """The mean loss of a batch's rows, each times its weight."""
        parts: list[Tensor] = []
        for output, label, loss, share in zip(
            outputs, labels, self._losses, self._work.loss_weights, strict=True
        ):
            if weights is None:
                parts.append(loss(output, label) * share)
            else:
                each = loss(output, label, reduction="none").flatten()
                parts.append((each * weights).mean() * share)
        return torch.stack(parts).sum()

    def judge(self, rows: Rows) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """A batch's outputs, its labels in their shapes, and its mean loss."""
        inputs, labels, weights = self.parts(rows)
        outputs, shaped = self.fitted(self._network(*inputs), labels)
        return outputs, shaped, self.loss(outputs, shaped, weights)

    @torch.no_grad()
    def summed(
        self, rows: int, loss: Tensor, outputs: Sequence[Tensor], labels: Sequence[Tensor]
    ) -> Tensor:
        """Rows, and the loss and each metric times them: sums over batches and ranks are exact."""
        found = [torch.as_tensor(1.0), loss]
        for group in self._work.metrics:
            functions = list(group) * len(labels) if len(group) == 1 else group
            for metric, output, label in zip(functions, outputs, labels, strict=True):
                found.append(torch.as_tensor(metric(output.detach(), label)))
        return torch.stack([x.detach().double().cpu().reshape(()) for x in found]) * rows

    def told(self, sums: Tensor) -> dict[str, Any]:
        """What sums over all rows say, in the form of Horovod's history."""
        rows, loss, *metrics = sums.tolist()
        values = iter(metrics)
        groups = [
            {f"group_{number}_{name}": next(values) / rows for name in self._work.columns.labels}
            for number in range(len(self._work.metrics))
        ]
        return {"loss": loss / rows, "all_metrics": groups}


def losses_of(work: Work, network: nn.Module) -> list[Any]:
    """The losses, made by the user's constructors where there are some."""
    if work.losses is not None:
        return list(work.losses)
    import horovod.torch as hvd

    known = {
        "model": network,
        "hvd": hvd,
        "torch": torch,
        "train_rows": work.datasets["train"].rows("train"),
    }
    return [make(**known) for make in work.constructors or ()]


def check(work: Work) -> None:
    """Apply everything to two rows here, so that what cannot work fails before the ranks start.

    Raises:
        JobError: naming which function fails, and how.
    """
    split = "train"
    plan = work.plan(split, 1)
    rows = next(dataclasses.replace(work, streaming=True).loader(split, plan, 0).in_order())
    rows = rows.take(torch.arange(min(2, len(rows))))
    network = copy.deepcopy(work.model).eval()
    what = "input_shapes" if work.transform is None else "transformation_fn"
    try:
        judge = Judge(work, network, torch.device("cpu"), ())
        inputs, labels, weights = judge.parts(rows)
        what = "model"
        with torch.no_grad():
            outputs = network(*inputs)
            count = len(listed(outputs))
            if count != len(labels):
                raise ValueError(f"it gives {count} outputs for {len(labels)} label_cols")
            what = "label_shapes"
            given, shaped = judge.fitted(outputs, labels)
            what = "loss"
            judge = Judge(work, network, torch.device("cpu"), losses_of(work, network))
            loss = judge.loss(given, shaped, weights)
            what = "metrics"
            judge.summed(len(rows), loss, given, shaped)
    except JobError:
        raise
    except Exception as error:
        raise JobError(
            f"{what} fails for the first rows: {type(error).__name__}: {error}.",
            "Labels are float32, as a batch of the label's shape (the output's where it has as "
            f"many numbers); inputs have input_shapes {[list(s) for s in work.input_shapes]}.",
        ) from error
