"""A training's state as a checkpoint, and back."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import torch

from trainyard.checkpoints import Checkpoints


def save(run_dir: str, epoch: int, state: Mapping[str, Any]) -> None:
    """Write the state after an epoch.

    Args:
        run_dir: the run directory.
        epoch: the epoch that is complete, from 1.
        state: tensors and plain values only, so that it loads with `weights_only`.

    Raises:
        TransientError: it cannot be written; those before it stay.
    """
    _of(run_dir).save(epoch, to_bytes(state))


def load(run_dir: str, note: Callable[[str], None]) -> dict[str, Any] | None:
    """The state of the last checkpoint that is sound, or None.

    Args:
        run_dir: the run directory.
        note: told of each checkpoint that is not sound.
    """
    data = _of(run_dir).load(note)
    if data is None:
        return None
    return from_bytes(data)


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """A state of tensors and plain values as bytes."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    """The state that `to_bytes` was given, on the CPU."""
    return dict(torch.load(io.BytesIO(data), weights_only=True, map_location="cpu"))


def on_cpu(value: Any) -> Any:
    """A value with its tensors, at any depth, in the machine's memory."""
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {name: on_cpu(item) for name, item in value.items()}
    return [on_cpu(item) for item in value] if isinstance(value, list) else value


def _of(run_dir: str) -> Checkpoints:
    return Checkpoints(run_dir=run_dir, unit="epoch", suffix=".pt")
