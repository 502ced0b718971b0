"""Builds Horovod from its source distribution, once for each PyTorch, and keeps the wheel.

Its last release predates what PyTorch's headers and CMake ask for today. A compiler wrapper that
names C++20 last outvotes its C++14 flag, and a policy version lets CMake 4 read its bundled Gloo.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from environments.steps import Steps

BUILD = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
}
GPU_PREFIXES = ("HOROVOD_GPU", "HOROVOD_NCCL", "HOROVOD_CUDA")
_DESCRIBE = """
import json, platform, sysconfig, torch
version = ".".join(platform.python_version_tuple()[:2])
print(json.dumps([torch.__version__, version, sysconfig.get_platform()]))
"""


def build_settings() -> dict[str, str]:
    """Answer with what shapes the build, the user's own GPU variables included."""
    gpu = {name: value for name, value in os.environ.items() if name.startswith(GPU_PREFIXES)}
    return {**BUILD, "CXX": os.environ.get("CXX", "g++"), **gpu}


def wheel(pinned: str, python: Path, tools: Path, cache: Path, steps: Steps) -> Path:
    """Answer with Horovod's wheel for the PyTorch installed beside `python`.

    `pinned` is the lock's `horovod==VERSION` with its hashes. The folder in `cache` is named for
    all that the wheel depends on, and appears there complete. The user's GPU variables count when
    the environment is next made anew.
    """
    described = subprocess.run(
        [str(python), "-c", _DESCRIBE], check=True, capture_output=True, text=True
    ).stdout
    torch, version, platform = json.loads(described)
    settings = build_settings()
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    release = pinned.split()[0].replace("==", "-")
    name = f"{release}-torch-{torch}-py{version}-{platform}-{digest}"
    kept = cache / name
    if not kept.is_dir():
        with steps.step(f"jobs: build Horovod (log: {steps.log.name})"):
            _build(pinned, python, tools, kept, settings, steps)
    (built,) = kept.glob("*.whl")
    return built


def _build(
    pinned: str,
    python: Path,
    tools: Path,
    kept: Path,
    settings: dict[str, str],
    steps: Steps,
) -> None:
    work = kept.parent / "build"
    shutil.rmtree(work, ignore_errors=True)
    made = work / "wheel"
    made.mkdir(parents=True)
    requirement = work / "requirements.txt"
    requirement.write_text(pinned)
    wrapper = work / "c++20"
    wrapper.write_text(f'#!/bin/sh\nexec {settings["CXX"]} "$@" -std=gnu++20\n')
    wrapper.chmod(0o755)
    env = {
        **settings,
        "CXX": str(wrapper),
        "TMPDIR": str(work),
        # Each compiler takes about a GiB; Horovod would start eight, or one under another make.
        "MAKEFLAGS": f"-j{min(8, os.cpu_count() or 1)}",
        "PATH": f"{tools}/bin:{os.environ['PATH']}",
    }
    # pip's own cache would answer with a wheel that was built for another PyTorch.
    pip = [str(python), "-m", "pip", "wheel", "--verbose", "--no-cache-dir", "--no-deps"]
    build = ["--no-build-isolation", "--no-binary=horovod", f"--wheel-dir={made}"]
    steps.run([*pip, *build, f"--requirement={requirement}"], env)
    made.rename(kept)
    shutil.rmtree(work)
