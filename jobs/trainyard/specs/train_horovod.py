"""The settings of `train_horovod`."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.contract import setting
from trainyard.errors import SettingError
from trainyard.optimizers import OPTIMIZER_PARAMS, check_optimizer_params
from trainyard.specs import class_weights
from trainyard.specs.common import RunDirectory, check_model_name


@dataclass(frozen=True, kw_only=True)
class TrainHorovod(RunDirectory):
    """Train a PyTorch network with Horovod on Spark."""

    job = "train_horovod"
    slots_setting = "ranks"
    imports = ("torch", "horovod.torch")

    dataset: str = setting(
        help="Directory that holds the prepared dataset.json.", section="Data", operational=True
    )
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
        search={"low": 16, "high": 512, "log": True},
    )
    optimizer: str = setting(
        "SGD", choices=tuple(OPTIMIZER_PARAMS), help="Class in torch.optim.", section="Training"
    )
    learning_rate: float = setting(
        0.025,
        above=0.0,
        help="Learning rate of one rank.",
        section="Training",
        search={"low": 0.001, "high": 0.3, "log": True},
    )
    scale_learning_rate: bool = setting(
        True, help="Multiply the learning rate by the number of ranks.", section="Training"
    )
    optimizer_params: dict[str, object] = setting(
        {"momentum": 0.9},
        help="The optimizer's own parameters, as JSON; {} for its defaults.",
        section="Training",
    )
    loss: str = setting(
        "auto",
        choices=("auto", "cross_entropy", "mse", "l1", "huber"),
        help="What is made small; auto is cross entropy for classes and mse for a regression.",
        section="Training",
    )
    class_weights: str = setting(class_weights.NONE, help=class_weights.HELP, section="Training")
    schedule: str = setting(
        "constant",
        choices=("constant", "cosine", "linear", "step"),
        help="How the learning rate falls; cosine and linear end at 0.",
        section="Schedule",
        search={"choices": ["constant", "cosine", "linear"]},
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
        1, minimum=1, help="Epochs between checkpoints.", section="Training", operational=True
    )
    cycle_time_ms: float = setting(
        1.0,
        above=0.0,
        maximum=1000,
        help="Horovod's cycle time in milliseconds.",
        section="Horovod",
        operational=True,
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
        operational=True,
    )
    start_timeout: int = setting(
        60,
        minimum=1,
        help="Seconds to wait until every rank has a slot.",
        section="Horovod",
        operational=True,
    )
    stall_timeout: int = setting(
        120,
        minimum=10,
        help="Seconds after which a rank that does not answer ends the training.",
        section="Horovod",
        operational=True,
    )
    experiment: str = setting(
        "trainyard", help="MLflow experiment of the run.", section="Tracking", operational=True
    )
    model_name: str = setting(
        help="Name of the registered model.", section="Tracking", operational=True
    )

    @property
    def slots(self) -> int:
        """One for each rank."""
        return self.ranks

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
        check_model_name(self.model_name)
        check_optimizer_params(self.optimizer, self.optimizer_params)
        class_weights.check_class_weights(self.class_weights)
        if self.warmup_epochs >= self.epochs:
            raise SettingError(
                "warmup_epochs",
                self.warmup_epochs,
                f"there are only {self.epochs} epochs",
                "Make it less than epochs.",
            )
