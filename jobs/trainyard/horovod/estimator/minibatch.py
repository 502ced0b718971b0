"""What a user's own training step gets as its optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import horovod.torch as hvd
from torch import Tensor, nn

from trainyard.horovod import optimizer
from trainyard.horovod.gradients import Gradients


class StepOptimizer:
    """An optimizer whose step is taken by the mean of all ranks' gradients.

    Args:
        inner: the optimizer itself, whose other attributes are this one's.
        gradients: of the network.
        network: whose parameters it changes; told by hooks of each gradient.
    """

    def __init__(self, inner: Any, gradients: Gradients, network: nn.Module) -> None:
        self._inner = inner
        self._gradients = gradients
        self._has_gradients = False
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]

    def _note(self, _: Tensor) -> None:
        self._has_gradients = True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self._has_gradients = False
        self._gradients.zero()

    def step(self) -> None:
        """Add up the gradients over the ranks, and change the parameters."""
        self._has_gradients = False
        self._gradients.scale(1 / hvd.size())
        self._gradients.reduce()
        optimizer.step(self._inner)

    def finish(self) -> None:
        """Take the epoch's last step, where the user's function leaves it to the next batch.

        Horovod's own does: it steps before a batch by the gradients of those before it.
        """
        if self._has_gradients:
            self.step()

    def synchronize(self) -> None:
        """Nothing: `step` waits for the other ranks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def arguments(fn: Callable[..., Any], given: Sequence[Any]) -> Sequence[Any]:
    """As many of the arguments as a function takes: older ones take the first seven."""
    takes = inspect.signature(fn).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in takes):
        return given
    return given[: len(takes)]
