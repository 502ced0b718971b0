#!/bin/sh
# The Spark master. Its REST server listens in the network of Airflow alone, and asks for a token.
set -eu
umask 077
properties=$(mktemp)
cat "$SPARK_CONF_DIR/spark-defaults.conf" - > "$properties" <<END

spark.master.rest.enabled true
spark.master.rest.host spark-rest
spark.master.rest.filters org.apache.spark.ui.JWSFilter
spark.org.apache.spark.ui.JWSFilter.param.secretKey $SPARK_REST_KEY
spark.deploy.recoveryMode FILESYSTEM
spark.deploy.recoveryDirectory /spark-recovery
END
unset SPARK_REST_KEY
exec spark-class org.apache.spark.deploy.master.Master \
    --host spark-cluster --port 7077 --webui-port 8080 --properties-file "$properties"
