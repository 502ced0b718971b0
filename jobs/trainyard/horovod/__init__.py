"""Training with Horovod on Spark: launcher, loader, loop, checkpoints, and a Spark ML estimator.

    from trainyard.horovod import AdlsStore, SparkBackend, Store, TorchEstimator, TorchModel

stands where `horovod.spark.torch`, `horovod.spark.common` and Azure Synapse's `horovodutils` did.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.horovod.estimator.backend import SparkBackend as SparkBackend
    from trainyard.horovod.estimator.estimator import TorchEstimator as TorchEstimator
    from trainyard.horovod.estimator.model import TorchModel as TorchModel
    from trainyard.horovod.estimator.store import AdlsStore as AdlsStore
    from trainyard.horovod.estimator.store import Store as Store

_WHERE = {
    "AdlsStore": "store",
    "SparkBackend": "backend",
    "Store": "store",
    "TorchEstimator": "estimator",
    "TorchModel": "model",
}

__all__ = ["AdlsStore", "SparkBackend", "Store", "TorchEstimator", "TorchModel"]


def __getattr__(name: str) -> Any:
    """The estimator's classes, imported when they are asked for: a rank needs none of them."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"trainyard.horovod.estimator.{_WHERE[name]}")
    found = getattr(module, name)
    globals()[name] = found
    return found
