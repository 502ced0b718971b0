"""The settings of `predict`."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.contract import setting
from trainyard.errors import SettingError
from trainyard.images.hosts import split_entry
from trainyard.specs.common import SOURCE_FORMATS, SPLITS, RunDirectory, check_model


@dataclass(frozen=True, kw_only=True)
class Predict(RunDirectory):
    """Score a table, a dataset or images with a model and write the predictions as Parquet."""

    job = "predict"
    imports = ("pyarrow", "torch")

    source: str = setting(
        help="Path or URI of the rows, of a prepared dataset's directory, or, for a model of "
        "images, of a folder, a pattern such as /photos/*.jpg, or a list of paths and URLs.",
        section="Source",
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
        help="Column that identifies a row, or names an image; without it the model's own.",
        section="Source",
    )
    bad_rows: float = setting(
        0.0,
        minimum=0.0,
        maximum=1.0,
        help="Share of the rows that may be bad and go to quarantine; with more the run fails "
        "once the others are scored.",
        section="Source",
        operational=True,
    )
    bad_rows_count: int | None = setting(
        None,
        minimum=0,
        help="How many rows may be bad; as many as the share allows without it.",
        section="Source",
        operational=True,
    )
    model: str = setting(
        help="Model directory, models:/NAME/VERSION, models:/NAME@ALIAS, or "
        "package:efficientnet_lite0, which labels photographs.",
        section="Model",
    )
    top_k: int | None = setting(
        None,
        minimum=1,
        help="Likeliest classes to keep of each row, best first, by name; without it all "
        "probabilities in the order of the model's classes.",
        section="Model",
    )
    batch_size: int = setting(
        512, minimum=1, maximum=1_000_000, help="Most rows scored at a time.", section="Model"
    )
    batch_memory: int = setting(
        128,
        minimum=1,
        help="Memory in MB that a network's layers may take for a batch, which is made smaller "
        "to fit.",
        section="Model",
        operational=True,
    )
    device: str = setting(
        "auto",
        choices=("auto", "cpu", "gpu"),
        help="Where a network scores; auto is the GPU that Spark gave the task, if any.",
        section="Model",
        operational=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        help="Hosts that images may be downloaded from: names, *.DOMAIN or * for any at a public "
        "address; HOST:PORT for other ports than http's and https's.",
        section="Images",
    )
    max_megabytes: int = setting(
        20, minimum=1, maximum=2000, help="Most MB of an image's file.", section="Images"
    )
    url_timeout: float = setting(
        1.0,
        above=0.0,
        help="Seconds to wait for a connection, and for each piece of an answer; ten times that "
        "for the whole.",
        section="Images",
        operational=True,
    )
    url_retries: int = setting(
        2,
        minimum=0,
        maximum=10,
        help="How often a download that failed is tried again, each time later.",
        section="Images",
        operational=True,
    )
    host_connections: int = setting(
        8,
        minimum=1,
        help="Downloads from one host at a time, shared among Spark's slots; one a slot at least.",
        section="Images",
        operational=True,
    )
    decode_threads: int = setting(
        4,
        minimum=1,
        maximum=64,
        help="Images that a task reads and decodes at a time, ahead of the network.",
        section="Images",
        operational=True,
    )

    @property
    def splits(self) -> tuple[str, ...]:
        """The parts of a prepared dataset to score."""
        return (self.split,) if self.split else SPLITS

    def check(self) -> None:
        """Refuse a model at a web address, and a host that no URL can have."""
        check_model("model", self.model)
        for entry in self.allowed_hosts:
            try:
                split_entry(entry)
            except ValueError as error:
                raise SettingError(
                    "allowed_hosts",
                    list(self.allowed_hosts),
                    f"{entry!r} is no host",
                    "Write its name alone, such as images.example.com, name:port or *.example.com.",
                ) from error
