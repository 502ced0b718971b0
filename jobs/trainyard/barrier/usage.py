"""What a rank's process uses."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def memory() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0
