"""The settings of every job: import these to name a job in a DAG, or to see what a job takes."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.contract import Contract, setting
from trainyard.errors import SettingError, nearest
from trainyard.optimizers import OPTIMIZER_PARAMS, check_optimizer_params

SPLITS = ("train", "validation", "test")
"""The parts of a prepared dataset."""

TASKS = ("classification", "regression")
"""What a model learns: which class a row has, or a number."""

SOURCE_FORMATS = ("auto", "parquet", "csv", "json", "idx", "table", "sample")
"""How a source is read; `auto` goes by the name."""


@dataclass(frozen=True, kw_only=True)
class RunDirectory(Contract):
    """What every job takes."""

    run_dir: str = setting(
        help="Directory, on any filesystem URI, in which this run alone works.",
        section="Run",
        template="{{ run_dir }}",
    )

    @property
    def slots(self) -> int:
        """Spark tasks that must run at the same time."""
        return 1


@dataclass(frozen=True, kw_only=True)
class Prepare(RunDirectory):
    """Turn a source into a dataset: validated, split Parquet with a dataset.json."""

    job = "prepare"

    source: str = setting(
        help="Path or URI of the data, table:DATABASE.NAME for a Spark table, or sample:NAME for a "
        "dataset that a package carries.",
        section="Source",
    )
    format: str = setting(
        "auto", choices=SOURCE_FORMATS, help="How the source is read.", section="Source"
    )
    schema: str | None = setting(
        None,
        help="What the columns must be: a packaged schema's name, the path of a .json file, or its "
        "text; without one any number is good.",
        section="Source",
    )
    bad_rows: float = setting(
        0.0,
        minimum=0.0,
        below=1.0,
        help="Share of the rows that may be bad and go to quarantine; more is an error.",
        section="Source",
    )
    findings: str = setting(
        "note",
        choices=("note", "refuse"),
        help="What a suspicious feature column is: a note in the log, or an error.",
        section="Source",
    )
    task: str = setting(
        "classification",
        choices=TASKS,
        help="Whether the label is a class or a number to predict.",
        section="Columns",
    )
    features: tuple[str, ...] = setting(
        help="Feature columns: numbers and categories, or one column of arrays or vectors.",
        section="Columns",
    )
    categorical: tuple[str, ...] = setting(
        (),
        help="Those of the features that are categories; each gets a number for each value.",
        section="Columns",
    )
    label: str = setting(help="Label column.", section="Columns")
    key: str | None = setting(
        None,
        help="Column that identifies a row; without one a row is identified by its content.",
        section="Columns",
    )
    weight: str | None = setting(
        None, help="Column that says how much a row counts in training.", section="Columns"
    )
    keep: tuple[str, ...] = setting(
        (), help="Columns to carry along, to judge a model by their values.", section="Columns"
    )
    imputation: str = setting(
        "none",
        choices=("none", "mean", "median"),
        help="What stands for a missing number, as fitted on the training rows; none refuses it.",
        section="Preprocessing",
    )
    scaling: str = setting(
        "none",
        choices=("none", "standard", "minmax", "robust"),
        help="How numbers are scaled, as fitted on the training rows.",
        section="Preprocessing",
    )
    split_by: str = setting(
        "hash",
        choices=("hash", "time", "column"),
        help="What decides on a row's split: a hash of its key, its time, or a column that names "
        "the split.",
        section="Split",
    )
    split_column: str | None = setting(
        None, help="The column of times or of names that splits the rows.", section="Split"
    )
    stratify: bool = setting(
        False, help="Split each class by itself, so that all get their share.", section="Split"
    )
    validation_fraction: float = setting(
        0.1,
        minimum=0.0,
        below=1.0,
        help="Share of the rows that judges each epoch.",
        section="Split",
    )
    test_fraction: float = setting(
        0.2, above=0.0, below=1.0, help="Share of the rows that judges the model.", section="Split"
    )
    split_seed: int = setting(
        0, minimum=0, help="Seed of the split by hash of the row key.", section="Split"
    )
    row_group_rows: int = setting(
        2048, minimum=1, help="Rows that a reader holds in memory at a time.", section="Files"
    )
    reuse: bool = setting(
        True,
        help="Take a dataset that was made before from the same rows and settings, if it is whole.",
        section="Files",
    )
    datasets: str | None = setting(
        None,
        help="Directory of the index of datasets to reuse; without one each run makes its own.",
        section="Files",
    )

    def check(self) -> None:
        """Raise `SettingError` when the settings of columns or of the split contradict."""
        self._check_columns()
        self._check_split()

    def _check_columns(self) -> None:
        columns = [*self.features, self.label, *filter(None, (self.key, self.weight))]
        if not self.features:
            raise SettingError(
                "features", [], "it names no column", "Name at least one feature column."
            )
        for column in columns:
            if columns.count(column) > 1:
                raise SettingError(
                    "features",
                    list(self.features),
                    f"column {column!r} has two roles",
                    "Name it once.",
                )
        for column in self.categorical:
            if column not in self.features:
                raise SettingError(
                    "categorical",
                    list(self.categorical),
                    f"column {column!r} is no feature",
                    nearest(column, self.features),
                )
        for name, named in (("categorical", self.categorical), ("keep", self.keep)):
            if len(set(named)) < len(named):
                raise SettingError(name, list(named), "a column repeats", "Name it once.")

    def _check_split(self) -> None:
        if self.validation_fraction + self.test_fraction >= 1:
            raise SettingError(
                "validation_fraction",
                self.validation_fraction,
                f"with test_fraction {self.test_fraction} it leaves no rows to train on",
                "Make the two add up to less than 1.",
            )
        if (self.split_column is None) != (self.split_by == "hash"):
            needs = "needs a column" if self.split_column is None else "uses none"
            raise SettingError(
                "split_column",
                self.split_column,
                f"a split by {self.split_by} {needs}",
                "Name the column, or split by hash."
                if self.split_column is None
                else "Leave it out, or set split_by to time or column.",
            )
        if self.split_column == self.label:
            raise SettingError(
                "split_column", self.label, "it is the label", "Split by another column."
            )
        if self.stratify and (self.split_by != "hash" or self.task == "regression"):
            other = "a regression" if self.task == "regression" else f"a split by {self.split_by}"
            raise SettingError(
                "stratify",
                self.stratify,
                f"{other} has no classes to split one by one",
                "Leave it out, or split a classification by hash.",
            )


@dataclass(frozen=True, kw_only=True)
class TrainHorovod(RunDirectory):
    """Train a PyTorch network with Horovod on Spark."""

    job = "train_horovod"

    dataset: str = setting(help="Directory that holds the prepared dataset.json.", section="Data")
    streaming: bool = setting(
        True,
        help="Read row groups while training; otherwise hold each rank's share in memory.",
        section="Data",
    )
    network: str = setting(
        "trainyard.networks.mnist:ConvNet",
        help="Import path of the torch.nn.Module, as module:Class.",
        section="Network",
    )
    network_params: dict[str, object] = setting(
        {}, help="Keyword arguments of the network's class, as JSON.", section="Network"
    )
    input_shape: tuple[int, ...] = setting(
        (1, 28, 28),
        minimum=1,
        help="Shape of one row's features, as the network takes them.",
        section="Network",
    )
    ranks: int = setting(
        2, minimum=1, maximum=4096, help="Horovod ranks, one Spark task each.", section="Training"
    )
    epochs: int = setting(
        30, minimum=1, maximum=100_000, help="Passes over the training rows.", section="Training"
    )
    batch_size: int = setting(
        128,
        minimum=1,
        maximum=1_000_000,
        help="Most rows of a step on each rank.",
        section="Training",
    )
    optimizer: str = setting(
        "SGD", choices=tuple(OPTIMIZER_PARAMS), help="Class in torch.optim.", section="Training"
    )
    learning_rate: float = setting(
        0.025, above=0.0, help="Learning rate of one rank.", section="Training"
    )
    scale_learning_rate: bool = setting(
        True, help="Multiply the learning rate by the number of ranks.", section="Training"
    )
    optimizer_params: dict[str, object] = setting(
        {"momentum": 0.9}, help="The optimizer's own parameters, as JSON.", section="Training"
    )
    loss: str = setting(
        "auto",
        choices=("auto", "cross_entropy", "mse", "l1", "huber"),
        help="What is made small; auto is cross entropy for classes and mse for a regression.",
        section="Training",
    )
    class_weights: str = setting(
        "none",
        help="How much a row of each class counts in the loss: none, balanced, or a number for "
        "each class in the dataset's order, such as 1,2.5.",
        section="Training",
    )
    schedule: str = setting(
        "constant",
        choices=("constant", "cosine", "linear", "step"),
        help="How the learning rate falls; cosine and linear end at 0.",
        section="Schedule",
    )
    warmup_epochs: float = setting(
        0.0,
        minimum=0.0,
        help="Epochs in which the learning rate rises from 0 to its full value.",
        section="Schedule",
    )
    step_epochs: int = setting(
        10, minimum=1, help="Epochs of each step of the step schedule.", section="Schedule"
    )
    step_factor: float = setting(
        0.1,
        above=0.0,
        maximum=1.0,
        help="What each step of the step schedule multiplies the learning rate by.",
        section="Schedule",
    )
    patience: int = setting(
        0,
        minimum=0,
        help="Stop after so many epochs in a row without a better validation loss; 0 never does.",
        section="Schedule",
    )
    min_delta: float = setting(
        0.0,
        minimum=0.0,
        help="How much lower a loss must be to count as better for patience.",
        section="Schedule",
    )
    clip_norm: float | None = setting(
        None, above=0.0, help="Largest norm of the gradients of a step.", section="Training"
    )
    backward_passes_per_step: int = setting(
        1,
        minimum=1,
        maximum=10_000,
        help="Batches whose gradients are added up for one step.",
        section="Training",
    )
    seed: int = setting(
        0,
        minimum=0,
        maximum=2**31 - 1,
        help="Seed of the weights, the shuffle and the dropout.",
        section="Training",
    )
    checkpoint_every: int = setting(
        1, minimum=1, help="Epochs between checkpoints.", section="Training"
    )
    cycle_time_ms: float = setting(
        2.5,
        above=0.0,
        maximum=1000,
        help="Horovod's cycle time in milliseconds.",
        section="Horovod",
    )
    compression: str = setting(
        "none",
        choices=("none", "fp16"),
        help="Whether gradients travel between ranks as 16-bit numbers.",
        section="Horovod",
    )
    device: str = setting(
        "auto",
        choices=("auto", "cpu", "gpu"),
        help="Where a rank trains; auto is the GPU that Spark gave its task, if any.",
        section="Horovod",
    )
    relaunches: int = setting(
        1,
        minimum=0,
        maximum=100,
        help="How often the job itself starts the ranks again, from the last checkpoint, after "
        "one died.",
        section="Horovod",
    )
    start_timeout: int = setting(
        60, minimum=1, help="Seconds to wait until every rank has a slot.", section="Horovod"
    )
    stall_timeout: int = setting(
        120,
        minimum=10,
        help="Seconds after which a rank that does not answer ends the training.",
        section="Horovod",
    )
    experiment: str = setting("trainyard", help="MLflow experiment of the run.", section="Tracking")
    model_name: str = setting(help="Name of the registered model.", section="Tracking")

    @property
    def slots(self) -> int:
        """One for each rank."""
        return self.ranks

    @property
    def class_weight_values(self) -> tuple[float, ...] | None:
        """The numbers of `class_weights`, if it has any."""
        if self.class_weights in ("none", "balanced"):
            return None
        return tuple(float(text) for text in self.class_weights.split(","))

    def check(self) -> None:
        """Raise `SettingError` for what cannot be trained with."""
        module, _, name = self.network.partition(":")
        if not all(part.isidentifier() for part in module.split(".")) or not name.isidentifier():
            raise SettingError(
                "network",
                self.network,
                "it is not module:Class",
                "Write it as package.module:Class.",
            )
        check_optimizer_params(self.optimizer, self.optimizer_params)
        self._check_class_weights()
        if self.warmup_epochs >= self.epochs:
            raise SettingError(
                "warmup_epochs",
                self.warmup_epochs,
                f"there are only {self.epochs} epochs",
                "Make it less than epochs.",
            )

    def _check_class_weights(self) -> None:
        try:
            values = self.class_weight_values
        except ValueError:
            values = (-1.0,)
        if values is not None and not (min(values) >= 0 and 0 < sum(values) < float("inf")):
            raise SettingError(
                "class_weights",
                self.class_weights,
                "it is neither none, nor balanced, nor numbers of 0 or more",
                "Write one number for each class, separated by commas.",
            )


@dataclass(frozen=True, kw_only=True)
class Evaluate(RunDirectory):
    """Score a model, and the champion on the same rows, and compare them."""

    job = "evaluate"

    dataset: str = setting(help="Directory that holds the prepared dataset.json.", section="Data")
    split: str = setting(
        "test", choices=SPLITS, help="Part of the dataset to score.", section="Data"
    )
    model: str = setting(
        help="Model directory, or models:/NAME/VERSION or models:/NAME@ALIAS.", section="Model"
    )
    champion: str | None = setting(
        None,
        help="Model to compare with, such as models:/NAME@champion; none yet is no error.",
        section="Model",
    )
    mlflow_run_id: str | None = setting(
        None, help="MLflow run that receives the metrics and plots.", section="Tracking"
    )
    slices: tuple[str, ...] = setting(
        (),
        help="Columns, kept by prepare, for each value of which the metrics are given too.",
        section="Metrics",
    )
    confidence: float = setting(
        0.95, above=0.5, below=1.0, help="Confidence of the intervals.", section="Metrics"
    )
    bootstrap_samples: int = setting(
        500,
        minimum=100,
        maximum=10_000,
        help="Resamples of the rows behind the intervals.",
        section="Metrics",
    )
    bootstrap_rows: int = setting(
        200_000,
        minimum=1000,
        maximum=5_000_000,
        help="Most rows that are resampled; of more, a sample by hash of the key is.",
        section="Metrics",
    )
    seed: int = setting(0, minimum=0, help="Seed of the bootstrap.", section="Metrics")
    batch_size: int = setting(
        512, minimum=1, maximum=1_000_000, help="Rows scored at a time.", section="Model"
    )


@dataclass(frozen=True, kw_only=True)
class Predict(RunDirectory):
    """Score a table with a model and write the predictions as Parquet."""

    job = "predict"

    source: str = setting(
        help="Path or URI of the rows, or of a prepared dataset's directory.", section="Source"
    )
    format: str = setting(
        "auto",
        choices=(*SOURCE_FORMATS, "dataset"),
        help="How the source is read.",
        section="Source",
    )
    split: str | None = setting(
        None,
        choices=SPLITS,
        help="Part of a prepared dataset to score; all without it.",
        section="Source",
    )
    key: str | None = setting(
        None,
        help="Column that identifies a row; without it the model's own key column.",
        section="Source",
    )
    model: str = setting(
        help="Model directory, or models:/NAME/VERSION or models:/NAME@ALIAS.", section="Model"
    )
    batch_size: int = setting(
        512, minimum=1, maximum=1_000_000, help="Rows scored at a time.", section="Model"
    )


JOBS: tuple[type[RunDirectory], ...] = (Prepare, TrainHorovod, Evaluate, Predict)
"""Every job, in the order of a pipeline."""
