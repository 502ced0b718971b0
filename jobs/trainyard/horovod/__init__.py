"""Training with Horovod on Spark: launcher, loader, loop, checkpoints, and a Spark ML estimator.

    from trainyard.horovod import AdlsStore, SparkBackend, Store, TorchEstimator, TorchModel

stands where `horovod.spark.torch`, `horovod.spark.common` and Azure Synapse's `horovodutils` did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.lazily import lazily

if TYPE_CHECKING:
    from trainyard.horovod.estimator.backend import SparkBackend as SparkBackend
    from trainyard.horovod.estimator.estimator import TorchEstimator as TorchEstimator
    from trainyard.horovod.estimator.model import TorchModel as TorchModel
    from trainyard.horovod.estimator.store import AdlsStore as AdlsStore
    from trainyard.horovod.estimator.store import Store as Store

_WHERE = {
    "AdlsStore": "estimator.store",
    "SparkBackend": "estimator.backend",
    "Store": "estimator.store",
    "TorchEstimator": "estimator.estimator",
    "TorchModel": "estimator.model",
}

__all__ = ["AdlsStore", "SparkBackend", "Store", "TorchEstimator", "TorchModel"]

# A rank needs none of them.
__getattr__ = lazily(__name__, _WHERE)
