#!/usr/bin/env python3
"""Pack the jobs' environment into one file that `spark-submit --archives` ships to the executors.

make archive                                          var/archive/environment.tar.gz
make archive ARGS="--add mypackage==1.2 --add ./pkg"  with packages of one's own besides

The executors then need nothing but Spark and the same Python at the same place:

    spark-submit --archives var/archive/environment.tar.gz#environment ...
    PYSPARK_PYTHON=./environment/bin/python, PYSPARK_DRIVER_PYTHON=.venv/jobs/bin/python

PySpark itself stays out: executors take that of the Spark that runs them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".venv/tools/bin/uv"
LEFT_OUT = ("pyspark", "pyspark-*", "pip", "pip-*", "__pycache__")


def main() -> int:
    """Do what the command line says; answer with the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv/jobs")
    parser.add_argument("--output", type=Path, default=ROOT / "var/archive/environment.tar.gz")
    parser.add_argument(
        "--add", action="append", default=[], metavar="PACKAGE", help="as pip takes it; repeatable"
    )
    options = parser.parse_args()
    try:
        pack(options.environment, options.output, options.add)
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[0]} ended with {error.returncode}.", file=sys.stderr)
        return 1
    print(f"{options.output}: {options.output.stat().st_size / 2**20:,.0f} MiB")
    return 0


def pack(environment: Path, output: Path, packages: list[str]) -> None:
    """Write a relocatable copy of an environment, with further packages, as a tar file.

    The copy is made beside the archive of links to the environment's files, and removed again.

    Raises:
        subprocess.CalledProcessError: a package cannot be installed.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pack-", dir=output.parent) as work:
        copy = Path(work) / "environment"
        python = environment / "bin/python"
        create = [str(UV), "venv", "--quiet", "--relocatable", f"--python={python}"]
        subprocess.run([*create, str(copy)], check=True)
        source, target = (site_packages(place) for place in (environment, copy))
        shutil.copytree(
            source,
            target,
            ignore=shutil.ignore_patterns(*LEFT_OUT),
            copy_function=_link,
            dirs_exist_ok=True,
        )
        if packages:
            install = [str(UV), "pip", "install", "--quiet", "--link-mode=copy"]
            subprocess.run([*install, f"--python={copy}/bin/python", *packages], check=True)
        part = Path(work) / "part"
        with tarfile.open(part, "w:gz", compresslevel=1) as archive:
            archive.add(copy, arcname=".")
        part.replace(output)


def site_packages(environment: Path) -> Path:
    """The folder of an environment's packages."""
    (found,) = environment.glob("lib/python3.*/site-packages")
    return found


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # the archive lies on another disk
        shutil.copy2(source, target)


if __name__ == "__main__":
    sys.exit(main())
