"""A network's gradients in one buffer, so that a step costs one allreduce."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from trainyard.errors import SettingError
from trainyard.horovod.collective import sum_over_ranks
from trainyard.horovod.objective import Judged


class Exchange(Protocol):
    """The settings of a training that say how gradients are added up."""

    @property
    def clip_norm(self) -> float | None:
        """Largest norm of a step's gradients, if any."""

    @property
    def compression(self) -> str:
        """`none`, or `fp16`."""

    @property
    def stall_timeout(self) -> int:
        """Seconds to wait for the other ranks."""


class Gradients:
    """The gradients of a network, and this rank's share of the loss, which travels with them.

    Args:
        network: on its device.
        spec: the training's settings.
        weighted: whether the rows of a step add up to another weight than their number.
    """

    def __init__(self, network: nn.Module, spec: Exchange, *, weighted: bool) -> None:
        trained = [p for p in network.parameters() if p.requires_grad]
        self._spec = spec
        self._weighted = weighted
        # The last two are the loss and the weight.
        self._all = torch.zeros(sum(p.numel() for p in trained) + 2, device=trained[0].device)
        self._flat = self._all[:-2]
        parts = torch.split(self._flat, [p.numel() for p in trained])
        for parameter, part in zip(trained, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def zero(self) -> None:
        """Forget the last step's."""
        self._all.zero_()

    def add(self, judged: Judged, rows: int) -> None:
        """Add those of a batch.

        Args:
            judged: the batch's loss.
            rows: rows of the whole step, over all ranks and passes.
        """
        torch.autograd.backward(judged.loss / rows)
        self._all[-2] += judged.loss.detach() / rows
        self._all[-1] += judged.weight / rows

    def scale(self, factor: float) -> None:
        """Multiply this rank's."""
        self._all *= factor

    def reduce(self) -> float:
        """Make them the mean over the step's rows on all ranks; return the mean of the loss.

        Raises:
            SettingError: they are too large for 16 bits.
        """
        self._sum()
        if self._weighted and self._all[-1] > 0:
            self._all[:-1] /= self._all[-1].clone()
        if self._spec.clip_norm is not None:
            norm = torch.linalg.vector_norm(self._flat)
            self._flat *= (self._spec.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        return self._all[-2].item()

    def _sum(self) -> None:
        timeout = self._spec.stall_timeout
        if self._spec.compression == "none":
            self._all.copy_(sum_over_ranks(self._all.cpu(), "gradients", timeout))
            return
        half = sum_over_ranks(self._flat.half().cpu(), "gradients", timeout)
        # In full: a loss or a weight may well exceed what 16 bits hold.
        self._all[-2:] = sum_over_ranks(self._all[-2:].cpu(), "loss", timeout)
        if not torch.isfinite(half).all() and torch.isfinite(self._all[-2]):
            raise SettingError(
                "compression",
                self._spec.compression,
                "a gradient exceeds 65504, the most that 16 bits hold",
                "Set it to none, or scale the features and labels.",
            )
        self._flat.copy_(half)
