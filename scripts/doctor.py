#!/usr/bin/env python3
"""Look at all that a pipeline needs before it runs, without a Spark session.

make doctor                                       the connection spark_default and this installation
make doctor ARGS="--conn-id spark_cluster"        another connection
make doctor ARGS="--dag mnist_horovod"            every Spark task of a DAG, with its defaults
make doctor ARGS='--dag mnist_horovod --conf {"ranks":4}'  with values of the trigger form

Each line is a finding: ok, warning or error, with the setting, its value and what to do. Exits with
1 where there is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services import installation
from services.installation import ROOT, Installation

if TYPE_CHECKING:
    from trainyard_airflow.doctor.findings import Finding
    from trainyard_airflow.doctor.patient import Patient


def main() -> int:
    """Do what the command line says; answer with the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--conn-id", default="spark_default", help="Spark connection")
    parser.add_argument("--dag", help="look at the Spark tasks of this DAG, on their connections")
    parser.add_argument("--conf", type=json.loads, default={}, help="values of the form, as JSON")
    options = parser.parse_args()
    place = Installation(home=installation.home(os.environ), port=0)
    # Airflow would write a configuration of its own where there is none.
    place.prepare()
    os.environ.update(place.environment(os.environ))
    sys.path[:0] = [str(ROOT / "jobs"), str(ROOT / "plugins")]
    from trainyard_airflow.doctor.examine import examine
    from trainyard_airflow.doctor.findings import failed
    from trainyard_airflow.doctor.patient import Patient

    if options.dag is None:
        patients = [Patient(task_id=options.conn_id, job=None, conn_id=options.conn_id)]
        findings: list[Finding] = []
    else:
        patients, findings = tasks_of(options.dag, options.conf)
        if not patients:
            print(f"{options.dag} has no Spark task, or is no DAG.", file=sys.stderr)
            return 1
    findings += examine(patients)
    print(*findings, sep="\n")
    return 1 if failed(findings) else 0


def tasks_of(dag_id: str, conf: dict[str, Any]) -> tuple[list[Patient], list[Finding]]:
    """The Spark tasks of a DAG with the form's defaults and `conf`, and what is refused of them."""
    from airflow.dag_processing.dagbag import DagBag

    from trainyard_airflow.doctor.patient import patients_of

    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    dag = DagBag(folder, bundle_path=folder, bundle_name="dags").dags.get(dag_id)
    if dag is None:
        return [], []
    context = {"params": {**dag.params.dump(), **conf}}
    return patients_of(dag, context)


if __name__ == "__main__":
    sys.exit(main())
