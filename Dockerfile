# Two images: `airflow`, which has neither Java nor PyTorch, and `spark`. Their environments are made by
# scripts/setup.py, as on any machine, without what only tests need.
#
#   docker build --target spark --build-arg TORCH_BACKEND=cuda .    # with CUDA's libraries

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS base
RUN useradd --uid 10001 --create-home trainyard \
 && install --directory --owner=trainyard /store /spark-events /spark-recovery /spark-work /mlflow \
    /opt/trainyard/var /opt/trainyard/var/airflow /opt/trainyard/var/airflow/logs
WORKDIR /opt/trainyard
ENV PYTHONUNBUFFERED=1

FROM base AS tools
COPY scripts/environments scripts/environments
COPY scripts/setup.py scripts/requirements.txt scripts/
RUN mkdir jobs tests && touch tests/requirements.txt && python3 scripts/setup.py tools

# Readable by the images' user, whatever the umask under which they were checked out.
FROM base AS programs
WORKDIR /programs
COPY dags dags
COPY docker docker
COPY jobs jobs
COPY plugins plugins
RUN chmod -R a+rX .

# -- Airflow ---------------------------------------------------------------------------------------
FROM tools AS airflow-environment
COPY requirements.txt .
RUN python3 scripts/setup.py airflow

FROM base AS airflow
COPY --from=airflow-environment /opt/trainyard/.venv/airflow .venv/airflow
COPY --from=programs /programs .
ENV PATH=/opt/trainyard/.venv/airflow/bin:$PATH \
    PYTHONPATH=/opt/trainyard/jobs:/opt/trainyard/plugins \
    PYTHONDONTWRITEBYTECODE=1 \
    AIRFLOW_HOME=/opt/trainyard/var/airflow
USER trainyard

# -- Spark -----------------------------------------------------------------------------------------
FROM base AS java
# Spark's scripts ask `ps` which of its processes run.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*

FROM java AS compiler
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ make python3-dev \
 && rm -rf /var/lib/apt/lists/*
COPY --from=tools /opt/trainyard /opt/trainyard

# Horovod's wheel depends on a few pins alone: a change of the others does not build it again.
FROM base AS horovod-pins
COPY docker/horovod_pins.py jobs/requirements.txt ./
RUN python3 horovod_pins.py requirements.txt > pins.txt

FROM compiler AS horovod
ARG TORCH_BACKEND=cpu
ARG HOROVOD_GPU_OPERATIONS
COPY --from=horovod-pins /opt/trainyard/pins.txt jobs/requirements.txt
RUN python3 scripts/setup.py jobs

FROM compiler AS jobs-environment
ARG TORCH_BACKEND=cpu
ARG HOROVOD_GPU_OPERATIONS
COPY --from=horovod /opt/trainyard/.cache/wheels .cache/wheels
COPY jobs/requirements.txt jobs/requirements.txt
# What only a C++ extension or PyTorch's own tests need is left out.
RUN python3 scripts/setup.py jobs \
 && cd .venv/jobs/lib/python3*/site-packages/torch && rm -rf test include share \
 && find bin -type f ! -name torch_shm_manager -delete

FROM java AS spark
COPY --from=jobs-environment /opt/trainyard/.venv/jobs .venv/jobs
COPY --from=programs /programs/docker docker
COPY --from=programs /programs/jobs jobs
ENV PATH=/opt/trainyard/.venv/jobs/bin:$PATH \
    PYTHONPATH=/opt/trainyard/jobs \
    PYTHONDONTWRITEBYTECODE=1 \
    PYSPARK_PYTHON=/opt/trainyard/.venv/jobs/bin/python \
    SPARK_CONF_DIR=/opt/trainyard/docker/spark
USER trainyard
