"""The files that pages load, under addresses that change with their content."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"

PLOTLY = "plotly.min.js"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

FOR_EVER = "public, max-age=31536000, immutable"


@cache
def plotly() -> Path:
    """The charting library, as its package carries it.

    Raises:
        FileNotFoundError: the package plotly is not installed.
    """
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("The package plotly is not installed.")
    return Path(next(iter(spec.submodule_search_locations))) / "package_data" / PLOTLY


@cache
def files() -> dict[str, Path]:
    """Every file that is served, by name; nothing else is."""
    own = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}
    return {**own, PLOTLY: plotly()}


@cache
def own_tag() -> str:
    """A digest of the plugin's own files, which import each other by relative addresses."""
    digest = hashlib.sha256()
    for name in sorted(files()):
        if name != PLOTLY:
            digest.update(name.encode() + b"\0" + files()[name].read_bytes())
    return digest.hexdigest()[:16]


@cache
def plotly_styles() -> tuple[str, ...]:
    """Ids of the rules that the charting library adds for its maps unless they are there.

    No chart here is a map, and a page's policy forbids rules that a script adds.
    """
    found = re.findall(rb'getElementById\("([0-9a-f]{64})"\)', plotly().read_bytes())
    return tuple(sorted({name.decode() for name in found}))


@cache
def plotly_tag() -> str:
    """A digest of the charting library."""
    return hashlib.sha256(plotly().read_bytes()).hexdigest()[:16]
