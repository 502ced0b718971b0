"""
# image_labels: what do these photographs show?

Labels images with a network that others trained: EfficientNet-Lite0, which knows the 1,000 kinds of
things of ImageNet. Each image gets the likeliest labels with their probabilities; one that cannot
be read goes to quarantine with the reason.

| task | what it does | its result |
|---|---|---|
| `doctor` | looks at all that the other needs; an error ends the run here | XCom |
| `label` | reads, decodes and labels the images, part by part | `predictions/`, `quarantine/` |

**Your own images.** Trigger it with `source` set to a folder (`/home/you/photos`, every file below
it), a pattern (`/home/you/photos/*.jpg`), a list (a text file with a path or URL a line; Parquet,
CSV or `table:NAME` with a column `path`), or one URL; any filesystem that fsspec knows. Images are
downloaded only from `allowed_hosts`.

**When it runs.** By hand, and whenever the asset `images` is updated: an event whose extra holds
`source` names the images of that run. Every night: `schedule=AssetOrTimeSchedule(...)`.

**What you get.** Parquet with `key` (the path or URL), `prediction`, `labels` and `probabilities`
(best first), `model_name`, `model_version`, `scored_at`, under
`<store>/image_labels/<run>/label/g<generation>/`; the task's XCom and the events of the asset
`image_labels` name the exact path. Images in = labelled + quarantined. More bad images than
`bad_rows` allows fail the run, once the others are labelled. A retry labels only what is missing;
changed images are labelled anew.

**Another network.** `model` takes any registered model whose meta.json says how it takes `pixels`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, chain

from trainyard.specs import Predict
from trainyard_airflow.operators.doctor import DoctorOperator
from trainyard_airflow.operators.spark_job import SparkJobOperator
from trainyard_airflow.params import event_or_param, from_event, param, trigger_params

with DAG(
    dag_id="image_labels",
    doc_md=__doc__,
    description="Photographs: label them with a pre-trained network.",
    schedule=[Asset("images")],
    catchup=False,
    max_active_runs=2,
    tags=["inference", "images"],
    default_args={
        "owner": "trainyard",
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
        "execution_timeout": timedelta(hours=12),
    },
    params=trigger_params(
        Predict,
        "allowed_hosts",
        "max_megabytes",
        "url_timeout",
        "batch_memory",
        "device",
        source="sample:photographs",
        model="package:efficientnet_lite0",
        top_k=5,
        bad_rows=0.1,
    ),
    user_defined_macros={"from_event": from_event},
):
    doctor = DoctorOperator(task_id="doctor")
    label = SparkJobOperator(
        task_id="label",
        job=Predict(
            source=event_or_param("source"),
            model=param("model"),
            top_k=param("top_k"),
            bad_rows=param("bad_rows"),
            allowed_hosts=param("allowed_hosts"),
            max_megabytes=param("max_megabytes"),
            url_timeout=param("url_timeout"),
            batch_memory=param("batch_memory"),
            device=param("device"),
        ),
        outlets=[Asset("image_labels")],
    )
    chain(doctor, label)
