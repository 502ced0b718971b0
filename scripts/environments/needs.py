"""What a machine must have before an environment can be made, and what brings what is missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PYTHONS = ("3.11", "3.12")
MIN_JAVA = 17
DISK_GIB = {"tools": 0.3, "airflow": 0.7, "jobs": 2.8, "ui": 1}
"""Measured on Linux x86-64 with the CPU build of PyTorch; jobs includes Horovod's build."""
CUDA_GIB = 6.0

_PYTHON_PROBE = """
import ensurepip, json, os, platform, sys, sysconfig, venv
headers = os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h"))
print(json.dumps([sys._base_executable, platform.python_version(), headers]))
"""
_CXX_PROBE = "#include <concepts>\nstatic_assert(std::integral<int>);\n"


@dataclass(frozen=True)
class Need:
    """One thing looked for: `found` says what is there, and None that it is missing."""

    what: str
    found: str | None
    fix: str
    debian: str | None = None
    """The Debian package that brings it."""


@dataclass(frozen=True)
class Python:
    """An interpreter that can make environments, and is in none itself."""

    executable: str
    version: str
    headers: bool
    """Whether C++ extensions can be built for it."""


def find_python(preferred: str) -> Python | None:
    """Answer with the first of `preferred` and PATH's pythons that is a supported version."""
    for name in (preferred, *(f"python{version}" for version in PYTHONS)):
        if probe := _output([name, "-c", _PYTHON_PROBE]):
            python = Python(*json.loads(probe))
            if python.version.startswith(tuple(f"{version}." for version in PYTHONS)):
                return python
    return None


def check(names: list[str], root: Path, python: Python | None, torch_backend: str) -> list[Need]:
    """Look for all that the environments `names` need, in a project at `root`."""
    needs = [
        Need(
            f"Python {' or '.join(PYTHONS)} with venv",
            f"{python.version}, {python.executable}" if python else None,
            "put a full CPython of one of these versions on PATH",
            "python3-venv",
        )
    ]
    if "jobs" in names:
        needs += [
            Need(
                "Python headers",
                "Python.h" if python and python.headers else None,
                "install the development package of the same Python",
                "python3-dev",
            ),
            _java(),
            _cxx(),
            Need("make", shutil.which("make"), "put GNU make on PATH", "make"),
        ]
    return [*needs, _disk(names, root, torch_backend)]


def report(needs: list[Need], everything: bool) -> bool:
    """Print what is missing, or `everything`; answer whether nothing is."""
    missing = [need for need in needs if need.found is None]
    for need in needs if everything else missing:
        status, detail = ("found", need.found) if need.found else ("missing", need.fix)
        print(f"{status:<8} {need.what}: {detail}")
    if packages := [need.debian for need in missing if need.debian]:
        print(f"On Debian and Ubuntu: apt-get install {' '.join(packages)}")
    return not missing


def _java() -> Need:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin/java")) if home else "java"
    version = re.search(r'version "(?:1\.)?(\d+)', _output([java, "-version"]) or "")
    recent = version is not None and int(version[1]) >= MIN_JAVA
    return Need(
        f"Java {MIN_JAVA} or later" + (f" in JAVA_HOME={home}" if home else ""),
        f"{version[1]}, {shutil.which(java)}" if version and recent else None,
        "put a Java on PATH, or name its folder in JAVA_HOME",
        "openjdk-17-jre-headless",
    )


def _cxx() -> Need:
    cxx = os.environ.get("CXX", "g++")
    works = (
        _output([cxx, "-std=gnu++20", "-fsyntax-only", "-x", "c++", "-"], _CXX_PROBE) is not None
    )
    return Need(
        f"a C++20 compiler, {cxx}",
        shutil.which(cxx) if works else None,
        "install GCC 10 or later as g++, or name another compiler in CXX",
        "g++",
    )


def _disk(names: list[str], root: Path, torch_backend: str) -> Need:
    gib = sum(DISK_GIB[name] for name in names)
    if "jobs" in names and torch_backend != "cpu":
        gib += CUDA_GIB
    free = shutil.disk_usage(root).free / 2**30
    return Need(
        f"{gib:.1f} GiB of free disk",
        f"{free:.1f} GiB" if free >= gib else None,
        f"{free:.1f} GiB are free in {root}; make room, or clone to a larger disk",
    )


def _output(command: list[str], stdin: str = "") -> str | None:
    """Answer with what `command` prints, or with None where it is missing or fails."""
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
