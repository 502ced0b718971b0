"""Print what of a lock Horovod's build depends on: PyTorch, Horovod and what these import.

    python3 horovod_pins.py requirements.txt

A stage of the Dockerfile builds Horovod from this part alone: other pins may change without it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HOROVOD = (
    "horovod",
    "cffi",
    "cloudpickle",
    "packaging",
    "psutil",
    "pycparser",
    "pyyaml",
    "setuptools",
)
TORCH = (
    "torch",
    "filelock",
    "fsspec",
    "jinja2",
    "markupsafe",
    "mpmath",
    "networkx",
    "numpy",
    "sympy",
    "typing-extensions",
)
XGBOOST = ("xgboost", "scipy")
"""Installed together with PyTorch where TORCH_BACKEND asks for CUDA."""


def main() -> int:
    """Print the pins of each package, with their hashes."""
    lock = Path(sys.argv[1]).read_text(encoding="utf-8")
    for name in (*HOROVOD, *TORCH, *XGBOOST):
        pins = re.findall(rf"^{name}==[^\\\n]*(?:\\\n[^\\\n]*)*", lock, re.MULTILINE)
        if not pins:
            print(f"{sys.argv[1]} has no pin for {name}", file=sys.stderr)
            return 1
        print("\n".join(pins))
    return 0


if __name__ == "__main__":
    sys.exit(main())
