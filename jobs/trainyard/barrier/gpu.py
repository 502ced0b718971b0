"""The GPU that Spark gave a task."""

from __future__ import annotations


def assigned_gpu() -> str | None:
    """The address of the GPU that Spark gave the present task, if any."""
    from pyspark import TaskContext

    context = TaskContext.get()
    gpu = context.resources().get("gpu") if context else None
    return gpu.addresses[0] if gpu else None
