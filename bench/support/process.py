"""Programs of a benchmark, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any


def in_process(command: Sequence[str], env: Mapping[str, str], *, seconds: float) -> Any:
    """What a program prints in its last line, as JSON.

    Args:
        command: the program and its arguments.
        env: variables beside those of this process.
        seconds: it may take.

    Raises:
        SystemExit: it fails; with the end of what it said.
    """
    done = subprocess.run(
        command,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
