#!/bin/sh
# The GPUs of this container, in the JSON that Spark's workers ask for.
set -eu
indexes=$(nvidia-smi --query-gpu=index --format=csv,noheader | sed 's/.*/"&"/' | paste -sd,)
echo "{\"name\": \"gpu\", \"addresses\": [$indexes]}"
