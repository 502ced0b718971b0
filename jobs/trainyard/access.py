"""What fsspec wants for a place besides its URI, such as a token: granted, and never shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_GRANTED: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True, kw_only=True)
class Access:
    """How places are opened; travels to the tasks that work there, and prints without its values.

    Attributes:
        places: their URIs; what lies below them is opened so too.
        options: fsspec's storage options.
    """

    places: tuple[str, ...]
    options: Mapping[str, Any] = field(repr=False)

    def grant(self) -> None:
        """Let this process open the places."""
        _GRANTED.update({place.rstrip("/"): dict(self.options) for place in self.places})


def options_for(uri: str) -> dict[str, Any]:
    """The storage options of the innermost place that holds a URI, none where there is none."""
    holding = [p for p in _GRANTED if uri == p or uri.startswith(f"{p}/")]
    return _GRANTED[max(holding, key=len)] if holding else {}
