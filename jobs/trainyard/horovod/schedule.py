"""The learning rate over a training: a factor of its full value that depends on the time alone."""

from __future__ import annotations

import math

from trainyard.specs import TrainHorovod


def factor(spec: TrainHorovod, epoch: float, step: float) -> float:
    """What the learning rate is multiplied by in a step.

    Args:
        spec: the job's settings.
        epoch: epochs that were complete before the step, with its part of the present one.
        step: the step's own length in epochs.
    """
    if epoch < spec.warmup_epochs:
        # The first step has a rate above zero and the last one of the warm-up the full rate.
        return min(1.0, (epoch + step) / spec.warmup_epochs)
    part = (epoch - spec.warmup_epochs) / (spec.epochs - spec.warmup_epochs)
    if spec.schedule == "cosine":
        return (1 + math.cos(math.pi * part)) / 2
    if spec.schedule == "linear":
        return 1 - part
    if spec.schedule == "step":
        return spec.step_factor ** math.floor(epoch / spec.step_epochs)
    return 1.0
