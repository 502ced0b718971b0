"""What stands here for each part of the libraries that lost their platform; see `migrate`."""

from __future__ import annotations

HERE = "trainyard.horovod"
XGBOOST = "trainyard.sparkdl.xgboost"

MOVED = {
    "horovod.spark.torch": {"TorchEstimator": HERE, "TorchModel": HERE},
    "horovod.spark.torch.estimator": {"TorchEstimator": HERE, "TorchModel": HERE},
    "horovod.spark.common.backend": {"SparkBackend": HERE},
    "horovod.spark.common.store": {"Store": HERE},
    "azure.synapse.ml.horovodutils": {"AdlsStore": HERE},
    "sparkdl.xgboost": {
        "XgboostClassifier": XGBOOST,
        "XgboostClassifierModel": XGBOOST,
        "XgboostRegressor": XGBOOST,
        "XgboostRegressorModel": XGBOOST,
    },
}
"""What each module has that is here, and where."""

GONE = {
    "LocalStore": f"from {HERE} import Store; Store.create(path)",
    "FilesystemStore": f"from {HERE} import Store; Store.create(path)",
    "HDFSStore": f"from {HERE} import Store; Store.create('hdfs://...')",
    "DBFSLocalStore": f"from {HERE} import Store; Store.create('/dbfs/...')",
    "HorovodRunner": f"from {HERE} import SparkBackend; SparkBackend(num_proc=n).run(main)",
    "KerasEstimator": "write the model in PyTorch, for TorchEstimator",
    "TorchEstimatorParamsReadable": "leave it out; TorchEstimator.load reads",
    "Backend": f"from {HERE} import SparkBackend",
}
"""What is not here by its name, and what does its work."""

MODULES = {
    "petastorm": "leave it out: ranks read Parquet themselves, from the DataFrame that fit is "
    "given",
    "horovod.spark.keras": GONE["KerasEstimator"],
    "horovod.spark.lightning": f"from {HERE} import TorchEstimator: give it the module, its "
    "optimizer and its loss",
    "horovod.spark": f"there is no such thing here; {HERE} has SparkBackend(num_proc).run(fn) for "
    "run",
}
"""What to do about all else of a module; the first that holds it counts."""

OLD = ("horovod.spark", "sparkdl", "azure.synapse.ml.horovodutils", "petastorm")
"""The libraries."""

BACKEND = {
    "use_mpi": "leave it out",
    "extra_mpi_args": "leave it out",
    "executable": "set PYSPARK_PYTHON",
}
"""What to do about arguments of a SparkBackend."""

STORE = {"checkpoint_filename": "leave it out", "linked_service": "give account_name and a key"}
"""What to do about arguments and storage options of a store."""
