"""Which version of a model serves, and the record of who let it, when and why.

A registry's alias is set unconditionally, so that of two who promote at once one would undo the
other unseen: whoever calls `promote` must be alone, and says which champion it knows of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainyard import registry
from trainyard.errors import JobError
from trainyard.registry import CHAMPION, RegisteredVersion

PREVIOUS_TAG = "trainyard.previous_champion"
"""Tag of a registered model: the version that served before the one that serves."""

PROMOTED_TAGS = ("trainyard.promoted_at", "trainyard.promoted_by", "trainyard.promoted_why")
"""Tags of a version: when it was let serve the last time, who let it and why."""

VERDICT_TAG = "trainyard.verdict"
"""Tag of a version: what the gate said of it."""

METRIC_TAG = "trainyard.metric"
"""Tag of a version: the metric by which the gate decided."""

_MOST_TEXT = 500


@dataclass(frozen=True, kw_only=True)
class Change:
    """Which version serves, and which did before."""

    champion: RegisteredVersion
    before: RegisteredVersion | None


def serving(name: str) -> RegisteredVersion | None:
    """The version that serves now, if one does."""
    return registry.find_alias(name, CHAMPION)


def previous(name: str) -> str | None:
    """The version that served before the one that serves now, if it is known."""
    client = registry.client()
    with registry.answering():
        tags: dict[str, str] = client.get_registered_model(name).tags
    return tags.get(PREVIOUS_TAG)


def promote(name: str, version: str, *, known: str | None, who: str, why: str) -> Change:
    """Let a version serve and record it; a rollback is the same.

    Args:
        name: the registered model.
        version: the version that is to serve.
        known: the champion that the caller decided against; None for none.
        who: person or run that decided.
        why: the reason.

    Raises:
        JobError: the version is not there, another champion than `known` serves, or the alias was
            not read back as it was set.
    """
    wanted = registry.resolve(f"models:/{name}/{version}")
    now = serving(name)
    if now == wanted:
        # An earlier try set the alias and was lost before it could say so.
        return Change(champion=wanted, before=None)
    found = now.version if now else None
    if found != known:
        raise JobError(
            f"the champion of {name} is {_shown(found)}, not {_shown(known)}, against which "
            f"version {version} was chosen.",
            "Judge it against the champion of now.",
        )
    client = registry.client()
    stamps = (datetime.now(UTC).isoformat(timespec="seconds"), who, why)
    with registry.answering():
        if now is not None:
            client.set_registered_model_tag(name, PREVIOUS_TAG, now.version)
        for tag, text in zip(PROMOTED_TAGS, stamps, strict=True):
            client.set_model_version_tag(name, version, tag, text[:_MOST_TEXT])
    return Change(champion=registry.set_alias(name, CHAMPION, version), before=now)


def record_verdict(judged: RegisteredVersion, summary: str, verdict: Mapping[str, Any]) -> None:
    """Keep what a gate said of a version with it: as tags, and whole with the run that made it.

    Raises:
        JobError: the registry does not answer.
    """
    client = registry.client()
    with registry.answering():
        for tag, text in ((VERDICT_TAG, summary), (METRIC_TAG, verdict.get("metric"))):
            if text is not None:
                client.set_model_version_tag(judged.name, judged.version, tag, text[:_MOST_TEXT])
        if judged.run_id is not None:
            # Through JSON, so that MLflow, which writes YAML for other names, gets plain values.
            client.log_dict(judged.run_id, json.loads(json.dumps(verdict)), "report/verdict.json")


def _shown(version: str | None) -> str:
    return f"version {version}" if version else "none"
