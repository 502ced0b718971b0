"""What must hold between the settings of `tune`: of its metric, its study and its space."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainyard.boosters import GROWING, METRICS, check_metrics
from trainyard.errors import SettingError, nearest

if TYPE_CHECKING:
    from trainyard.specs.tune import Tune

AUTO = "auto"

_DATABASES = ("postgresql", "postgres", "mysql", "sqlite")


def growing(engine: str) -> dict[str, bool]:
    """The figures that an engine measures of each split, and whether more of them is better."""
    if engine == "horovod":
        names = {name: name == "accuracy" for name in ("loss", "accuracy", "rmse")}
    else:
        names = {name: name in GROWING for kind in METRICS.values() for name in kind}
    return {f"{split}{name}": more for split in ("validation_", "") for name, more in names.items()}


def check_study(spec: Tune) -> None:
    """Raise `SettingError` where the study's place is no directory, or each driver has another."""
    if spec.study is None:
        return
    place = urlsplit(spec.study)
    if place.scheme.partition("+")[0] in _DATABASES:
        raise SettingError(
            "study",
            spec.study,
            "it is the address of a database, and not a directory",
            "Set TRAINYARD_STUDIES to it in the job's environment; study then names one in it.",
        )
    if place.scheme in ("", "file") and not place.path.startswith("/"):
        raise SettingError(
            "study",
            spec.study,
            "it is a relative path, which may be another place for each driver",
            "Give an absolute path, or a URI.",
        )


def check_metric(spec: Tune) -> None:
    """Raise `SettingError` where the engine does not measure the metric, or not that way round."""
    if spec.metric == AUTO:
        if spec.direction != AUTO:
            raise SettingError(
                "direction",
                spec.direction,
                "the metric is auto, which has its own direction",
                "Leave it at auto, or name the metric.",
            )
        return
    if spec.grows is None:
        raise SettingError(
            "metric",
            spec.metric,
            f"a training with {spec.engine} does not measure it",
            nearest(spec.metric.partition("@")[0], growing(spec.engine)),
        )
    if spec.engine == "xgboost":
        try:
            check_metrics((spec.measured,))
        except SettingError as error:
            fix = error.fix.replace("@", "_at_")
            raise SettingError("metric", spec.metric, error.problem, fix) from error
    better = "maximize" if spec.grows else "minimize"
    if spec.direction not in (AUTO, better):
        raise SettingError(
            "direction",
            spec.direction,
            f"of {spec.metric} {'more' if spec.grows else 'less'} is better",
            f"Use {better}, or auto.",
        )


def check_comparable(spec: Tune) -> None:
    """Raise `SettingError` where trials would differ in what their metric means."""
    measure, fix = {"class_weights"}, "Leave it out, or try booster_params.scale_pos_weight."
    if spec.engine == "xgboost" and spec.metric == AUTO:
        measure |= {"objective", "booster_params.tweedie_variance_power"}
        fix = "Leave it out, or name a metric that all of them have."
    elif spec.engine == "horovod":
        plain = spec.metric.removeprefix("validation_") in ("accuracy", "rmse")
        measure = set() if plain else {"class_weights", "loss"}
        fix = "Leave it out, or compare by validation_accuracy or validation_rmse."
    for dimension in spec.dimensions:
        if dimension.name in measure:
            raise SettingError(
                "space",
                spec.space,
                f"{dimension.name} changes what the metric {spec.metric!r} measures, so that "
                "its trials cannot be compared",
                fix,
            )
