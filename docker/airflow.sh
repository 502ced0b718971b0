#!/bin/sh
# airflow.sh init: make or migrate the metadata database, and the pools.
# airflow.sh api-server: serve the UI and the API, with the password that .env has.
set -eu
case $1 in
init)
    airflow db migrate
    airflow pools set trainyard_promotion 1 "one promotion at a time"
    # A deferred job holds its slot too: it is the cluster that has no more room.
    exec airflow pools set --include-deferred spark "$SPARK_JOBS" "jobs on the Spark cluster"
    ;;
api-server)
    (umask 077 && python -c 'import json, os
print(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))' > "$AIRFLOW_HOME/passwords.json")
    unset AIRFLOW_ADMIN_PASSWORD
    exec airflow api-server
    ;;
esac
