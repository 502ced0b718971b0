"""Networks as safetensors and back: plain tensors, never a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from trainyard import networks
from trainyard.errors import JobError


def to_bytes(state_dict: Mapping[str, Any]) -> bytes:
    """A network's state as a safetensors file.

    Raises:
        JobError: the state holds something that is no tensor, or a number that is not finite.
    """
    return save({name: _plain(name, value) for name, value in state_dict.items()})


def build(network: str, params: dict[str, Any], weights: bytes) -> nn.Module:
    """A network with its weights, in eval mode.

    Args:
        network: import path of its class, as module:Class.
        params: keyword arguments of the class.
        weights: what `to_bytes` made.

    Raises:
        JobError: the network cannot be made, or has other weights than the stored ones.
    """
    built = networks.build(network, params)
    try:
        built.load_state_dict(load(weights))
    except (RuntimeError, SafetensorError) as error:
        raise JobError(
            f"the stored weights do not fit {network}: {' '.join(str(error).split())}",
            "Use the network's class as it was when the model was trained.",
        ) from error
    return built.eval()


def _plain(name: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise JobError(
            f"the network's state {name!r} is a {type(value).__name__}, not a tensor.",
            "Keep only parameters and buffers in the network's state.",
        )
    if value.is_floating_point() and not torch.isfinite(value).all():
        raise JobError(
            f"the network's state {name!r} holds NaN or infinite numbers.",
            "Lower the learning rate, or check the features.",
        )
    # Clones, since safetensors refuses tensors that share memory, such as tied weights.
    return value.detach().cpu().contiguous().clone()
