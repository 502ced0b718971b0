"""Checkpoints of a training: whole objects whose names hold their digest."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from trainyard import store
from trainyard.layout import CHECKPOINTS, join

KEEP = 2
"""Checkpoints that stay: the last, and one to fall back to."""

_NAME = re.compile(r"epoch-(\d{6})-([0-9a-f]{32})\.pt")


def save(run_dir: str, epoch: int, state: Mapping[str, Any]) -> None:
    """Write the state after an epoch, and remove checkpoints that are no longer needed.

    Args:
        run_dir: the run directory.
        epoch: the epoch that is complete, from 1.
        state: tensors and plain values only, so that it loads with `weights_only`.

    Raises:
        TransientError: it cannot be written; those before it stay.
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    data = buffer.getvalue()
    directory = join(run_dir, CHECKPOINTS)
    with store.writing(f"the checkpoint of epoch {epoch} in {directory!r}"):
        store.write_bytes(join(directory, f"epoch-{epoch:06d}-{_digest(data)}.pt"), data)
    for name in _names(directory)[:-KEEP]:
        store.remove(join(directory, name))


def load(run_dir: str, note: Callable[[str], None]) -> dict[str, Any] | None:
    """The state of the last checkpoint that is sound, or None.

    Args:
        run_dir: the run directory.
        note: told of each checkpoint that is not sound.
    """
    directory = join(run_dir, CHECKPOINTS)
    for name in reversed(_names(directory)):
        data = store.read_bytes(join(directory, name))
        match = _NAME.fullmatch(name)
        if match and _digest(data) == match[2]:
            return dict(torch.load(io.BytesIO(data), weights_only=True, map_location="cpu"))
        note(f"checkpoint {name} is corrupt; falling back to the one before it")
    return None


def on_cpu(value: Any) -> Any:
    """A value with its tensors, at any depth, in the machine's memory."""
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {name: on_cpu(item) for name, item in value.items()}
    return [on_cpu(item) for item in value] if isinstance(value, list) else value


def _names(directory: str) -> list[str]:
    return [name for name in store.list_names(directory) if _NAME.fullmatch(name)]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
