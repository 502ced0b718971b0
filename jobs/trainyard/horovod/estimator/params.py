"""The parameters of Horovod's TorchEstimator and TorchModel."""

from __future__ import annotations

from typing import Any

from trainyard.errors import SettingError
from trainyard.ml.objects import choice
from trainyard.ml.parameter import (
    FLAG,
    NUMBERS,
    TEXT,
    TEXTS,
    Setting,
    listed,
    native,
    whole,
)

_READ = (
    "each rank reads its own row groups itself, beside its training",
    "Leave it out. inmemory_cache_all=True holds a rank's rows in memory.",
)
_NVTABULAR = (
    "only NVTabular's reader needed it; features are what feature_cols names",
    "Leave it out.",
)
_FIELDS = ("what transformation_fn returns says what a row has", "Leave it out.")

ESTIMATOR = (
    Setting(name="num_proc", doc="number of ranks; or give a backend", convert=whole()),
    Setting(
        name="data_module",
        doc="class that reads the rows",
        refused=("rows are read by this project's loader", "Leave it out; petastorm is not used."),
    ),
    Setting(name="model", doc="the torch.nn.Module to train"),
    Setting(name="backend", doc="what starts the ranks: SparkBackend", is_saved=False),
    Setting(name="store", doc="where runs and intermediate rows lie", is_saved=False),
    Setting(name="optimizer", doc="torch.optim.Optimizer; its rate is multiplied by the ranks"),
    Setting(name="loss", doc="loss(output, label), or one for each label"),
    Setting(name="loss_constructors", doc="functions that give the losses on a rank"),
    Setting(name="metrics", doc="groups of metric(output, label)", default=[]),
    Setting(
        name="loss_weights",
        doc="weight of each loss; all the same",
        convert=NUMBERS,
    ),
    Setting(name="sample_weight_col", doc="column of rows' weights", convert=TEXT),
    Setting(name="gradient_compression", doc="hvd.Compression.none or .fp16"),
    Setting(
        name="compress_sparse_cols",
        doc="whether sparse vectors are written as such",
        default=False,
        convert=FLAG,
        refused=("files are compressed, zeros too", "Leave it out."),
    ),
    Setting(
        name="feature_cols",
        doc="columns, one for each input of the model",
        convert=TEXTS,
    ),
    Setting(
        name="label_cols",
        doc="columns, one for each output of the model",
        convert=TEXTS,
    ),
    Setting(name="continuous_cols", doc="columns of numbers, for NVTabular", refused=_NVTABULAR),
    Setting(name="categorical_cols", doc="columns of categories", refused=_NVTABULAR),
    Setting(
        name="input_shapes",
        doc="shape of each input, such as [[-1, 1, 28, 28]]",
        convert=native,
    ),
    Setting(
        name="label_shapes",
        doc="shape of each label; by default the output's",
        convert=native,
    ),
    Setting(name="validation", doc="share of the rows that validate, or a column that says so"),
    Setting(
        name="callbacks", doc="called with each epoch's number and history on each rank", default=[]
    ),
    Setting(name="batch_size", doc="rows of a rank's step", default=32, convert=whole()),
    Setting(name="val_batch_size", doc="rows validated at a time", convert=whole()),
    Setting(name="epochs", doc="passes over the rows", default=1, convert=whole()),
    Setting(
        name="verbose", doc="0 is silent, 1 prints an epoch's metrics", default=1, convert=whole(0)
    ),
    Setting(name="random_seed", doc="seed of shuffling and dropout", convert=whole(0)),
    Setting(
        name="shuffle_buffer_size",
        doc="rows that are shuffled together",
        accessor="ShufflingBufferSize",
        refused=("it was deprecated", "Set shuffle=False for no shuffling."),
    ),
    Setting(
        name="shuffle",
        doc="whether rows come in another order each epoch",
        default=True,
        convert=FLAG,
    ),
    Setting(
        name="partitions_per_process",
        doc="files written for each rank, at most; fewer of a frame with fewer partitions",
        default=10,
        convert=whole(),
    ),
    Setting(
        name="run_id",
        doc="name of the run; one that the store has is resumed after its last epoch",
        convert=TEXT,
    ),
    Setting(name="train_minibatch_fn", doc="takes a training step"),
    Setting(name="train_steps_per_epoch", doc="steps of an epoch", convert=whole()),
    Setting(name="validation_steps_per_epoch", doc="batches validated by", convert=whole()),
    Setting(name="transformation_fn", doc="changes a row, a dict of arrays, before it is used"),
    Setting(name="transformation_edit_fields", doc="fields it changes", refused=_FIELDS),
    Setting(name="transformation_removed_fields", doc="fields it removes", refused=_FIELDS),
    Setting(
        name="train_reader_num_workers",
        doc="threads that read",
        default=2,
        accessor="TrainReaderNumWorker",
        refused=_READ,
    ),
    Setting(
        name="val_reader_num_workers",
        doc="threads that read",
        default=2,
        accessor="ValReaderNumWorker",
        refused=_READ,
    ),
    Setting(name="reader_pool_type", doc="petastorm's pool", default="thread", refused=_READ),
    Setting(
        name="inmemory_cache_all",
        doc="hold a rank's rows in memory, also more than 64 MiB",
        default=False,
        convert=FLAG,
        accessor="InMemoryCacheAll",
    ),
    Setting(
        name="use_gpu",
        doc="train on the GPU that Spark gave a rank's task, if it gave one",
        default=True,
        convert=FLAG,
    ),
    Setting(
        name="mp_start_method",
        doc="how processes start",
        refused=("a rank starts no process", "Leave it out."),
    ),
    Setting(
        name="backward_passes_per_step",
        doc="batches added up for one step",
        default=1,
        convert=whole(),
    ),
)
"""The estimator's parameters."""

ALLOW_PICKLE = choice(
    "save as a pickle what nothing else can hold; loading one runs code of whoever wrote it"
)
"""Beside Horovod's own."""

MODEL = (
    Setting(name="history", doc="what came of each epoch"),
    Setting(name="model", doc="the trained torch.nn.Module"),
    Setting(name="optimizer", doc="the optimizer after the last epoch"),
    Setting(name="loss", doc="the losses"),
    Setting(name="loss_constructors", doc="functions that give the losses"),
    Setting(
        name="feature_columns",
        doc="columns, one for each input of the model",
        convert=TEXTS,
    ),
    Setting(name="label_columns", doc="columns of labels", convert=TEXTS),
    Setting(name="input_shapes", doc="shape of each input", convert=native),
    Setting(name="run_id", doc="the run that made it", convert=TEXT),
    Setting(
        name="outputCols",
        doc="columns of predictions, one for each output",
        convert=TEXTS,
    ),
)
"""The model's parameters."""

OBJECTS = (
    "model",
    "optimizer",
    "loss",
    "loss_constructors",
    "metrics",
    "callbacks",
    "gradient_compression",
    "train_minibatch_fn",
    "transformation_fn",
)
"""Parameters whose values are no JSON."""


def shapes(name: str, value: Any, columns: list[str]) -> list[list[int]]:
    """Shapes, one for each column, the first number of each -1 for the rows.

    Raises:
        SettingError: they are missing, or none.
    """
    example = [[-1, 784] for _ in columns]
    if not value:
        raise SettingError(
            name, value, "a model's inputs need it", f"Say what a batch looks like: {example}."
        )
    found = [list(shape) for shape in listed(value) if isinstance(shape, list | tuple)]
    whole_numbers = all(isinstance(size, int) for shape in found for size in shape)
    if len(found) != len(columns) or not whole_numbers:
        raise SettingError(
            name,
            value,
            f"it must be a list of {len(columns)} shapes, one for each of {columns}",
            f"Such as {example}.",
        )
    for shape in found:
        if not shape or shape[0] != -1 or any(size < 1 for size in shape[1:]):
            raise SettingError(
                name,
                value,
                f"{shape} does not begin with -1, which stands for the rows of a batch",
                f"Such as {example}.",
            )
    return found
